"""The order of the tests, what takes long first, so that two workers end together; and one thread for each of them."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Before torch is imported: two workers with two threads each wait for one another on two cores."""

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
"""An example that is slow once, on a machine with other work, is no fault of what is tested."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Integration tests before all others; files stay whole and in order."""
    items.sort(key=lambda item: "integration" not in item.path.parts)
