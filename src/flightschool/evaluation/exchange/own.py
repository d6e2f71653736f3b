"""What our own exports carry beside the foreign format, so that they come back as what they were, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flightschool.errors import GateError
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.records import Json

__all__ = ["KEY", "edited", "header_of", "item_table", "rebuilt"]

KEY = "flightschool"
"""Under which our own facts stand in metadata of foreign formats."""


def header_of(run: EvaluationRun) -> dict[str, Json]:
    """All of a run but its items, with the digest of the whole."""
    plain: dict[str, Json] = msgspec.to_builtins(msgspec.structs.replace(run, items=()))
    return {"run": plain, "digest": run.digest}


def item_table(item: EvaluationItem) -> dict[str, Json]:
    """One item."""
    plain: dict[str, Json] = msgspec.to_builtins(item)
    return plain


def rebuilt(header: Json, items: Sequence[Json], where: str) -> EvaluationRun:
    """The run that was exported.

    Raises:
        GateError: header or items are not what was exported: something was edited, added or cut.
    """
    try:
        run = msgspec.convert(header["run"], EvaluationRun)
        rows = tuple(msgspec.convert(item, EvaluationItem) for item in items)
        whole = msgspec.structs.replace(run, items=rows)
        stated = header["digest"]
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise edited(f"its own record cannot be read: {error}", where) from error
    if whole.digest != stated:
        raise edited("its scores are not those that were exported", where)
    return whole


def edited(what: str, where: str) -> GateError:
    """The refusal of an export of ours that is not what was written."""
    return GateError(
        what,
        where=where,
        expected="an export as flightschool wrote it",
        mend="export it again from the workspace that measured it",
    )
