"""The order of the tests: what takes long begins first, so that two workers end together."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Integration tests before all others; files stay whole and in order."""
    items.sort(key=lambda item: "integration" not in item.path.parts)
