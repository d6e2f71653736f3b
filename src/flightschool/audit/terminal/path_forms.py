"""Equivalent paths: a path in the work written relative to the working directory, with ``./``, through ``..``.

All name the same file. Which of them a reader of the instruction may write hangs on its words: *any path*, *also a
relative one* make a form as good; an *absolute path* rules the relative ones out; a *canonical* one all of them. Where
nothing is said, a form is a matter of taste.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.outputs import Output

__all__ = ["path_forms"]

_A_PATH: Final = re.compile(r"(?<![^\s\"'`,;|=(\[])/(?:[\w.+@-]+/)*[\w.+@-]*\w(?![^\s\"'`,;|)\]])")
_GOOD: Final = (
    r"(?:fine|ok(?:ay)?\b|accept(?:ed|able)|allowed|permitted|valid\b|as good|good enough|will do"
    r"|works\b|counts\b|too\b)"
)
_ANY: Final = re.compile(
    r"(?:^|[.;:,(\n]\s*|\b(?:and|so|since|but|because|in) )"  # it begins a clause: "report any path" asks for one
    r"any (?:\w+ )?(?:path|(?:form|spelling|notation) of (?:the |a |its )?path)s?\b(?! that (?:is|are))"
    rf"[^.;\n]{{0,60}}?{_GOOD}"
    r"|however (?:the |its |you )?(?:path is )?(?:written|spell|spelled|write)\b[^.;\n]{0,20}path",
    re.I,
)
_RELATIVE: Final = re.compile(
    rf"\b(?:relative|absolute or relative)\b[^.;\n]{{0,60}}?{_GOOD}"
    r"|\b(?:also|even|or|may be|can be)(?: \w+)? relative\b"
    r"|\brelative or absolute\b",
    re.I,
)
_WRITES: Final = re.compile(r"writ|sav|output|answer|submit|produc|stor|result|report|fine|ok|accept|allow|good", re.I)
_DENIES: Final = re.compile(r"\bnot?\b|n't\b|\bnever\b|\binstead of\b|\brather than\b", re.I)
_ABSOLUTE: Final = re.compile(r"\b(?:absolute|full|complete|fully[- ]qualified)\b", re.I)
_CANONICAL: Final = re.compile(r"\b(?:canonical|normali[sz]ed|resolved|real ?path|as (?:it is )?listed)\b", re.I)
_FROM: Final = re.compile(r"\brelative\b[^.;\n]{0,30}?\b(?:from|to) [`'\"]?(/[\w./-]*\w)", re.I)


def path_forms(output: Output, view: InView) -> Iterator[tuple[str, str, bool]]:
    """Text, what was changed, and whether the instruction calls it as good. Of new files that are no programs."""
    told = view.instruction
    if output.before is not None or output.kind in ("code", "binary") or _CANONICAL.search(told):
        return
    known = {folder for path in view.inputs for folder in _above(path)} | set(view.inputs)
    if not any(_is_known(path, known, view.workdir) for path in _A_PATH.findall(output.text)):
        return
    any_path = _is_said(_ANY, told) and not re.search(r"\bany absolute path", told, re.I)
    relative = any_path or _is_said(_RELATIVE, told)
    named = _FROM.search(told)
    base = named.group(1) if named else view.workdir

    def written(prefix: str, *, whole: bool = False) -> str:
        def other(match: re.Match[str]) -> str:
            path = match.group()
            if not _is_known(path, known, view.workdir):
                return path
            return prefix + (path if whole else posixpath.relpath(path, base))

        return _A_PATH.sub(other, output.text)

    if relative or not _ABSOLUTE.search(told):
        yield written(""), f"paths relative to {base}", relative
        yield written("./"), f"paths relative to {base}, with ./", relative
    if base != "/":
        yield written(f"{base}/..", whole=True), f"paths through {base}/..", any_path


def _is_said(words: re.Pattern[str], text: str) -> bool:
    """Whether a sentence about what is written says so, and does not deny it."""
    for match in words.finditer(text):
        begin = max(text.rfind(mark, 0, match.start()) for mark in (". ", "\n", ";")) + 1
        end = min((at for mark in (". ", "\n", ";") if (at := text.find(mark, match.end())) >= 0), default=len(text))
        sentence = text[begin:end]
        if _WRITES.search(sentence) and not _DENIES.search(sentence):
            return True
    return False


def _is_known(path: str, known: set[str], workdir: str) -> bool:
    """Whether it is a path of this world, and no address or name that only looks like one."""
    return path in known or (workdir != "/" and path.startswith(f"{workdir}/"))


def _above(path: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) not in ("", "/"):
        yield path
