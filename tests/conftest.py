"""The order of the tests: what takes long begins first, so that two workers end together."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files marked ``long`` first, then other integration tests, then the rest; files stay whole and in order."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("long") is not None:
        return 0
    return 1 if "integration" in item.path.parts else 2
