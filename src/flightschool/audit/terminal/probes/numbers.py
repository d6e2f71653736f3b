"""NaN, infinities and numbers out of range, alone and in the place of every number of an answer's form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.probes.contents import always, filled
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]

_VALUES: Final = ("nan", "inf", "-inf", "-1", "1e9")
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each value in all outputs that hold numbers."""
    outputs = [one for one in trial.work.outputs if one.kind not in ("code", "binary") and _NUMBER.search(one.text)]
    if not outputs:
        return
    for value in _VALUES:
        yield filled(trial, "not-a-number", f"the value {value}", always(f"{value}\n".encode()))
    for value in ("nan", "inf"):
        told = f"{value} in the place of every number"
        yield filled(trial, "not-a-number", told, partial(_with, value=value))


def _with(output: Output, value: str) -> bytes:
    if output.kind in ("json", "jsonl"):
        value = {"nan": "NaN", "inf": "Infinity"}.get(value, value)
    if output.kind == "binary":
        return output.data
    return _NUMBER.sub(value, output.text).encode()
