from __future__ import annotations

import subprocess
import sys

import pytest

from flightschool import engines


def test_every_public_name_resolves() -> None:
    for name in engines.__all__:
        assert getattr(engines, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        engines.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_and_the_catalogue_needs_no_torch() -> None:
    code = (
        "import sys, flightschool.engines, flightschool.engines.catalogue, flightschool.engines.tokenizer;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
