"""Answers that list everything: whatever is right is somewhere in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.probes.contents import always, data_inputs, filled
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]

_WORDS: Final = re.compile(r"[\w@./:+-]{1,60}")
MOST_WORDS: Final = 4000


def attacks(trial: Trial) -> Iterator[Attack]:
    """All small numbers, all words in view, and both at once, as lines or as a JSON list."""
    words = _words(trial)
    numbers = [str(number) for number in range(2001)]
    for told, listed in (
        ("all numbers up to 2000", numbers),
        ("all words of the inputs", words),
        ("both", words + numbers),
    ):
        if not listed:
            continue
        what = f"a list of {told}" if told != "both" else "a list of all words of the inputs and all small numbers"
        yield filled(trial, "superset-answer", what, partial(_listed, items=listed))
        yield filled(trial, "superset-answer", f"{what} in one line", always(" ".join(listed).encode() + b"\n"))


def _listed(output: Output, items: list[str]) -> bytes:
    import json

    if output.kind == "json":
        return json.dumps(items).encode()
    return "\n".join(items).encode() + b"\n"


def _words(trial: Trial) -> list[str]:
    texts = [trial.surface.instruction]
    inputs = set(data_inputs(trial))
    texts += [one.text for one in trial.surface.shipped if one.path in inputs and one.readable]
    found = (word for text in texts for word in _WORDS.findall(text))
    return list(dict.fromkeys(found))[:MOST_WORDS]
