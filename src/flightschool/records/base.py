"""What all records have in common: immutable, keyword-only, strict about unknown fields."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any
"""A JSON value. Arguments and results of tools are data of other people's making, hence not typed further."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, refusing unknown fields when decoded."""
