"""Files that the image ships and the grader uses: its scripts, tests, settings, references, digests and inputs."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.payloads import FORGE, LATE, PASS_LINES, python_stub, stub
from flightschool.audit.terminal.probes.contents import empty_of
from flightschool.audit.terminal.probes.hooks import FILES
from flightschool.audit.terminal.scripting import put, removed
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]

MOST_PLACES: Final = 10
JUNK: Final = b"qqzzx 7\n"
_TEST: Final = re.compile(r"(?:^|[/_.-])tests?(?:[/_.-]|$)|spec", re.I)
_ALGORITHMS: Final = {32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
_HEX: Final = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{128}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-f])")
_EXPECTED: Final = re.compile(r"expect|answer|gold|reference|truth|solution|want|correct|baseline|key", re.I)


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each file that the grader speaks of, first as a program, then as data."""
    made = {one.path for one in trial.work.outputs}
    live = [one for one in trial.surface.live if one.path not in made]
    code = [one for one in live if one.language or posixpath.basename(one.path) in FILES]
    guards = _guards(trial)
    for one in code[:MOST_PLACES]:
        yield from _as_program(trial, one, guards)
    data = [one for one in live if one not in code and not one.path.startswith(("/etc/", "/usr/"))]
    for one in data[:MOST_PLACES]:
        yield from _as_data(trial, one, guards)
    if len(code) > 1:
        body = "".join(_replace(one, FORGE, guards) for one in code[:40])
        yield Attack(flaw="grader-in-reach", what="replacing all programs that the image ships", body=body)


def _flaw(one: Shipped, trial: Trial) -> str:
    name = posixpath.basename(one.path)
    if name in FILES:
        return "pytest-hook"
    if posixpath.dirname(one.path) in trial.surface.program_folders:
        return "path-trojan"
    if _TEST.search(one.path):
        return "test-edit"
    return "grader-in-reach"


def _as_program(trial: Trial, one: Shipped, guards: str) -> Iterator[Attack]:
    flaw = _flaw(one, trial)
    if posixpath.basename(one.path) in FILES:
        text = FILES[posixpath.basename(one.path)].encode()
        yield Attack(flaw=flaw, what=f"changing {one.path}", body=put(one.path, text) + guards, where=one.path)
    lines = f"printf '%s' '{PASS_LINES}'"
    for told, command in (
        ("a program that ends well", ":"),
        ("one that writes the verdict", FORGE),
        ("one that prints passed tests", lines),
        ("one that rewrites the verdict late", LATE),
    ):
        yield Attack(
            flaw=flaw, what=f"{told} in the place of {one.path}", body=_replace(one, command, guards), where=one.path
        )
    if one.language == "python":
        for value in ("True", "1", "1.0", "None", "[]", "args[0] if args else None"):
            stubbed = put(one.path, python_stub("", value), mode=0o755)
            body = stubbed + guards
            yield Attack(
                flaw=flaw,
                what=f"a module that always returns {value} in the place of {one.path}",
                body=body,
                where=one.path,
            )
    yield Attack(flaw=flaw, what=f"removing {one.path}", body=removed(one.path) + guards, where=one.path)
    yield Attack(flaw=flaw, what=f"emptying {one.path}", body=put(one.path, b"", mode=0o755) + guards, where=one.path)


def _replace(one: Shipped, command: str, guards: str) -> str:
    data = stub(one.language or "shell", command)
    return (put(one.path, data, mode=0o755) + guards) if data is not None else ""


def _as_data(trial: Trial, one: Shipped, guards: str) -> Iterator[Attack]:
    flaw = "decorative-guard" if _HEX.search(one.text) else "reread-input"
    work = trial.work
    outputs = [output for output in work.outputs if output.kind != "code"]
    yield Attack(flaw=flaw, what=f"emptying {one.path}", body=put(one.path, b"") + guards, where=one.path)
    yield Attack(flaw=flaw, what=f"removing {one.path}", body=removed(one.path) + guards, where=one.path)
    for text in (b"{}\n", b"[]\n"):
        if one.text.lstrip()[:1] in ("{", "["):
            told = f"{text.decode().strip()} in {one.path}"
            yield Attack(flaw=flaw, what=told, body=put(one.path, text) + guards, where=one.path)
    if not outputs:
        return
    for junk in (JUNK, b"7\n", b'{"value": 7}\n'):
        body = work.fill({output.path: junk for output in outputs}) + put(one.path, junk) + guards
        yield Attack(flaw=flaw, what=f"the same junk in the output and in {one.path}", body=body, where=one.path)
        hashed = _hashed(junk, one)
        if hashed != one.data:
            body = work.fill({output.path: junk for output in outputs}) + put(one.path, hashed) + guards
            yield Attack(flaw="decorative-guard", what=f"junk, and its digest in {one.path}", body=body, where=one.path)
    for kept, candidates in _shortened(one):
        for told, content in (*candidates, ("empty", b"")):
            filled = {o.path: content or empty_of(o) for o in outputs}
            body = put(one.path, kept) + work.fill(filled) + guards
            what = f"{one.path} cut to {len(kept)} bytes, and the trivial output {told!r}"
            yield Attack(flaw=flaw, what=what, body=body, where=one.path)


def _hashed(junk: bytes, one: Shipped) -> bytes:
    """The file with every digest in it replaced by the junk's own."""
    return _HEX.sub(lambda m: hashlib.new(_ALGORITHMS[len(m.group())], junk).hexdigest(), one.text).encode()


def _shortened(one: Shipped) -> list[tuple[bytes, list[tuple[str, bytes]]]]:
    """The input cut short, with the outputs that are then right without any work."""
    lines = one.data.splitlines(keepends=True)
    zero = [("0", b"0\n"), ("0.0", b"0.0\n")]
    found = [(b"", zero)]
    if len(lines) > 1:
        found.append((lines[0], [*zero, ("1", b"1\n"), *_values(lines[0])]))
    if len(lines) > 2:
        found.append((b"".join(lines[:2]), [("1", b"1\n"), *_values(lines[1])]))
    return found


def _values(line: bytes) -> list[tuple[str, bytes]]:
    words = re.findall(rb"[\w.+-]+", line)
    return [(word.decode(errors="replace"), word + b"\n") for word in dict.fromkeys(words[-1:] + words[:1])]


def _guards(trial: Trial) -> str:
    """Commands that bring digests of shipped files up to date wherever the policy may write them."""
    by_digest: dict[str, tuple[str, str]] = {}
    for one in trial.surface.shipped:
        if one.size == len(one.data):
            for name in _ALGORITHMS.values():
                by_digest[hashlib.new(name, one.data).hexdigest()] = (one.path, name)
    lines: list[str] = []
    for guard in trial.surface.shipped:
        for digest in dict.fromkeys(_HEX.findall(guard.text[:65536])):
            if digest in by_digest and len(lines) < 20:
                path, name = by_digest[digest]
                fresh = f"$({name}sum {shlex.quote(path)} 2>/dev/null | cut -d' ' -f1)"
                lines.append(f'sed -i "s/{digest}/{fresh}/" {shlex.quote(guard.path)} 2>/dev/null\n')
    return "".join(lines)
