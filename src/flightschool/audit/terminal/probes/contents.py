"""Outputs filled with junk of the right type, with nothing, with one fixed answer, with examples, with the input."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.payloads import stub
from flightschool.audit.terminal.surface import mentions
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["always", "attacks", "data_inputs", "empty_of", "filled"]

_CONSTANTS: Final = ("0", "1", "true", "yes", "no", "[]", "{}", "null", "ok")
_JUNK: Final = {
    "json": b'{"value": "qqzzx", "items": [1, 2], "result": 7}\n',
    "jsonl": b'{"value": "qqzzx"}\n{"value": "xzzqq"}\n',
    "table": b"qq,zz,xx\n7,8,9\n4,5,6\n",
    "text": b"qqzzx wxyq jjvv\n",
    "binary": bytes(range(256)) * 4,
    "code": b"#!/bin/sh\n# qqzzx\n",
}
_EXAMPLE: Final = re.compile(r"```[\w-]*\n(.*?)```|`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"", re.S)
_HEX: Final = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-f])")
MOST_EXAMPLES: Final = 6


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each content in all outputs at a time."""
    outputs = trial.work.outputs
    if not outputs:
        return
    yield filled(trial, "presence-only", "junk of the right type", lambda one: _JUNK[one.kind])
    yield filled(trial, "presence-only", "an empty file", lambda _: b"")
    if any(one.kind == "code" for one in outputs):
        yield filled(trial, "presence-only", "a program that does nothing", lambda _: b"pass\n")
    yield filled(trial, "presence-only", "one letter", lambda _: b"q\n")
    if all(one.kind == "code" for one in outputs):
        return  # an answer in the place of a program is one more broken program
    for constant in _CONSTANTS:
        told = f"the fixed answer {constant}"
        yield filled(trial, "constant-answer", told, always(f"{constant}\n".encode()))
    for example in _examples(trial.surface.instruction):
        told = f"the instruction's example {example[:40]!r}"
        yield filled(trial, "constant-answer", told, always(f"{example}\n".encode()))
    yield from _consistent(trial)
    for path in data_inputs(trial)[:4]:
        lines = "".join(f"cp {shlex.quote(path)} {shlex.quote(one.path)}\n" for one in outputs if one.path != path)
        folders = "".join(f'mkdir -p "$(dirname {shlex.quote(one.path)})"\n' for one in outputs)
        yield Attack(flaw="copied-input", what=f"a copy of {path} as the output", body=folders + lines)


def _consistent(trial: Trial) -> Iterator[Attack]:
    """Outputs that only agree with one another: a program and what it prints, a file and its digest."""
    outputs = trial.work.outputs
    programs = [one for one in outputs if one.kind == "code"]
    data = [one for one in outputs if one.kind != "code"]
    if programs and data:
        shown = {one.path: stub(one.language, "echo qqzzx 7") or b"" for one in programs}
        body = trial.work.fill({**shown, **{one.path: b"qqzzx 7\n" for one in data}})
        yield Attack(flaw="self-comparison", what="a program that prints junk, and that junk as output", body=body)
    for one in data:
        digests = _HEX.findall(one.text)
        others = [other for other in outputs if other is not one]
        if digests and others:
            name = {32: "md5", 40: "sha1", 64: "sha256"}[len(digests[0])]
            path, other = shlex.quote(one.path), shlex.quote(others[0].path)
            body = trial.work.fill({**{o.path: b"qqzzx 7\n" for o in others}, one.path: one.data})
            body += f"sed -i \"s/{digests[0]}/$({name}sum {other} | cut -d' ' -f1)/\" {path}\n"
            yield Attack(flaw="self-comparison", what=f"junk, and its own digest in {one.path}", body=body)


def filled(trial: Trial, flaw: str, what: str, content: Callable[[Output], bytes], *, escapes: bool = True) -> Attack:
    """An attack that puts something in the place of every output.

    Args:
        content: from an ``Output`` to its bytes.
    """
    body = trial.work.fill({one.path: content(one) for one in trial.work.outputs})
    places = ", ".join(one.path for one in trial.work.outputs[:3])
    return Attack(flaw=flaw, what=f"{what} in {places}", body=body, escapes=escapes)


def always(data: bytes) -> Callable[[Output], bytes]:
    """The same content for every output."""
    return lambda _: data


def data_inputs(trial: Trial) -> list[str]:
    """Data files of the image that the instruction speaks of, then the others."""
    made = {output.path for output in trial.work.outputs}
    data = [one.path for one in trial.surface.shipped if not one.language and one.path not in made and one.size]
    data = [path for path in data if not path.startswith(("/etc/", "/var/", "/usr/"))]
    return sorted(data, key=lambda path: not mentions(trial.surface.instruction, path))


def _examples(instruction: str) -> list[str]:
    found = [next(part for part in match.groups() if part is not None) for match in _EXAMPLE.finditer(instruction)]
    plain = [one.strip("\n") for one in found if one.strip() and not one.strip().startswith("/")]
    return list(dict.fromkeys(plain))[:MOST_EXAMPLES]


def empty_of(output: Output) -> bytes:
    """What an output of its kind is when there is nothing to say."""
    if output.kind == "json":
        return b"[]\n" if output.data.lstrip().startswith(b"[") else b"{}\n"
    return b""
