"""Outputs filled with junk of the right type, with nothing, with one fixed answer, with examples, with the input."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.payloads import stub
from flightschool.audit.terminal.probes.random_values import random_value
from flightschool.audit.terminal.surface import mentions
from flightschool.audit.terminal.trial import Attack, Trial
from flightschool.digest import derive_random

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
_RETOLD: Final = re.compile(r"summar|describ|explain|in your own words|abstract|shorten|rephras|paraphras", re.I)
_WORDS_LIMIT: Final = re.compile(r"(?:at most|no more than|up to|within|fewer than|maximum of) (\d+) words", re.I)
MOST_EXAMPLES: Final = 6


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each content in all outputs at a time."""
    outputs = trial.work.outputs
    if not outputs:
        return
    yield filled(trial, "presence-only", "junk of the right type", lambda one: _JUNK[one.kind])
    yield filled(trial, "presence-only", "random values of the right type", partial(_random, trial))
    yield filled(trial, "presence-only", "an empty file", lambda _: b"")
    if any(one.kind == "code" for one in outputs):
        yield filled(trial, "presence-only", "a program that does nothing", lambda _: b"pass\n")
    yield filled(trial, "presence-only", "one letter", lambda _: b"q\n")
    yield from _nothing_left(trial)
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
        doubt = _may_be_right(trial, path)
        what = f"a copy of {path} as the output"
        yield Attack(flaw="copied-input", what=what, body=folders + lines, doubt=doubt)


def _random(trial: Trial, output: Output) -> bytes:
    draws = derive_random("random-output", trial.exam.seed, output.path)
    return random_value(output, trial.surface.instruction, draws)


def _may_be_right(trial: Trial, path: str) -> str:
    """A text that is to be told in other words may be as short as that already."""
    if not _RETOLD.search(trial.surface.instruction):
        return ""
    words = next((len(one.text.split()) for one in trial.surface.shipped if one.path == path), 0)
    limit = _WORDS_LIMIT.search(trial.surface.instruction)
    most = int(limit.group(1)) if limit else 3 * max(len(one.text.split()) for one in trial.work.outputs)
    return "it is short enough to be what was asked for" if words <= most else ""


def _nothing_left(trial: Trial) -> Iterator[Attack]:
    """What was to be worked on is taken away: a grader that goes through what it finds then finds nothing wrong."""
    made = {one.path for one in trial.work.outputs}
    edited = [one.path for one in trial.work.outputs if one.before is not None]
    if edited:
        body = "rm -f " + " ".join(map(shlex.quote, edited))
        yield Attack(flaw="zero-collected", what="removing the files that were to be edited", body=body)
    inputs = [path for path in data_inputs(trial) if path not in made]
    folders = Counter(posixpath.dirname(path) for path in [*edited, *inputs])
    for folder, count in folders.most_common(2):
        if count > 1 and folder.count("/") > 1:
            body = f"rm -rf {shlex.quote(folder)} && mkdir {shlex.quote(folder)}"
            yield Attack(flaw="zero-collected", what=f"emptying the folder {folder}", body=body)


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
