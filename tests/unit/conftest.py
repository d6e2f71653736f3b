"""What unit tests of several rooms use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def switch_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Use the native kernels, or do without (``off``), until the end of the test."""
    from flightschool.engines.kernels import SWITCH, find_kernels

    def switch(state: str) -> None:
        monkeypatch.setenv(SWITCH, state)
        find_kernels.cache_clear()

    yield switch
    find_kernels.cache_clear()
