"""What some tests need beyond what ``make install`` brings: a skip says what is absent and how to get it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

SHARED_DATA = Path(os.environ.get("FLIGHTSCHOOL_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
"""Recorded data of others, not part of the repository; by default in ``shared/data`` beside the checkout."""

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where sandboxes see programs of the machine."""


def reason(what: str, how: str) -> str:
    """Text of a skip: what is absent, and how to get it or where it would be there."""
    return f"needs {what}: {how}"


def skip(what: str, how: str) -> NoReturn:
    """Skip for the want of something."""
    pytest.skip(reason(what, how))


def package(module: str, distribution: str = "") -> Any:
    """A module of a package that only tests use, as an oracle or a reader; they are skipped where it is absent.

    Args:
        module: dotted name.
        distribution: that pip knows it by; by default the first part of the module's name.
    """
    name = distribution or module.partition(".")[0]
    return pytest.importorskip(module, reason=reason(f"the package {name}", f".venv/bin/python -m pip install {name}"))


def programs(*names: str, path: str | None = SYSTEM_PATH) -> None:
    """Skip unless all programs are on the path; ``None`` is that of the tests."""
    missing = [name for name in names if shutil.which(name, path=path) is None]
    if missing:
        skip(f"the program {', '.join(missing)}", "install it with this machine's package manager")


def root(why: str) -> None:
    """Skip unless this is the host's root."""
    if os.geteuid() != 0:
        skip("root", f"run the tests as root; {why}")


def sandbox(why_not: str) -> None:
    """Skip where no sandbox can be made; ``why_not`` is empty where one can."""
    if why_not:
        skip("a sandbox", f"{why_not.strip()}; `flightschool doctor` tells what to mend")


def shared_data(name: str) -> pytest.MarkDecorator:
    """Mark of tests that read a file or folder of the shared data."""
    text = reason(f"the shared data {name}", f"absent from {SHARED_DATA}; set FLIGHTSCHOOL_SHARED_DATA to their folder")
    return pytest.mark.skipif(not (SHARED_DATA / name).exists(), reason=text)
