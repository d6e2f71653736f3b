"""Text of a Dockerfile to instructions: directives, comments, continuations, flags, heredocs. No meaning yet.

Source: the Dockerfile reference of the Docker documentation; where it is silent, what the builder of today does:
a line ends in a continuation unless two escape characters stand at its end, comment and empty lines inside a continued
instruction vanish, and continued lines are joined with nothing between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from flightschool.environments.terminal.substitution import split_words
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["Dockerfile", "Heredoc", "Instruction", "json_form", "parse_dockerfile"]

MAX_INSTRUCTIONS = 2000
"""An image has at most 127 layers; a file far beyond that is no environment."""
KEYWORDS = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)
_WITH_FLAGS = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
_WITH_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$")
_DIRECTIVES = frozenset({"escape", "syntax", "check"})
_FLAG = re.compile(r"--(\S*)\s*")
_HEREDOC = re.compile(r"(\d*)<<(-?)([^<]+)$")


class Heredoc(Record, frozen=True, kw_only=True):
    """A document inside the Dockerfile."""

    name: str
    """Its delimiter; the file name in COPY and ADD."""
    content: str
    """With leading tabs already cut when ``<<-`` asks for it."""
    expand: bool
    """Whether variables are substituted in it: its delimiter stood without quotes."""
    descriptor: str = ""
    """File descriptor in front of ``<<``, as written."""


class Instruction(Record, frozen=True, kw_only=True):
    """One instruction with everything that belongs to it."""

    line: int
    """First line, counted from 1."""
    end_line: int
    keyword: str
    """In capitals."""
    rest: str
    """The argument text after the flags, lines joined, variables not yet substituted."""
    flags: tuple[tuple[str, str], ...] = ()
    """``--name=value`` as (name, value), in order."""
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def text(self) -> str:
        """The instruction as one line, for messages."""
        flags = "".join(f" --{name}={value}" if value else f" --{name}" for name, value in self.flags)
        return f"{self.keyword}{flags} {self.rest}".rstrip()


class Dockerfile(Record, frozen=True, kw_only=True):
    """A Dockerfile, parsed."""

    instructions: tuple[Instruction, ...]
    escape: str = "\\"
    syntax: str = ""
    """Frontend that the file asks for; empty: none named."""


def parse_dockerfile(text: str, where: str = "Dockerfile") -> Dockerfile:
    """Parse.

    Raises:
        InputError: unknown instruction, unknown escape character, a heredoc without end, or nothing in the file; with
            the line.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    directives, start = _directives(lines, where)
    escape = directives.get("escape", "\\")
    if escape not in ("\\", "`"):
        raise _error(f"escape character {escape!r}", where, 1, "a backslash or a backtick", "correct the directive")
    instructions: list[Instruction] = []
    index = start
    while index < len(lines):
        if _is_comment_or_blank(lines[index]):
            index += 1
            continue
        joined, behind = _join(lines, index, escape)
        if joined:  # not a lone escape character before the end
            instruction, behind = _instruction(joined, lines, index, behind, escape, where)
            instructions.append(instruction)
        if len(instructions) > MAX_INSTRUCTIONS:
            raise _error(f"more than {MAX_INSTRUCTIONS} instructions", where, index + 1, "a Dockerfile", "shorten it")
        index = behind
    if not instructions:
        raise _error("no instruction", where, 1, "FROM and what follows", "write the Dockerfile")
    return Dockerfile(instructions=tuple(instructions), escape=escape, syntax=directives.get("syntax", ""))


def json_form(rest: str) -> tuple[str, ...] | None:
    """The words of an argument in JSON form; None when it is not a JSON list of strings, and so is shell form."""
    if not rest.startswith("["):
        return None
    try:
        value = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    return tuple(value) if isinstance(value, list) and all(isinstance(word, str) for word in value) else None


# ------------------------------------------------------------------------------------------------ lines


def _directives(lines: Sequence[str], where: str) -> tuple[dict[str, str], int]:
    """Directives count only above the first comment, empty line or instruction that is none of them."""
    found: dict[str, str] = {}
    for index, line in enumerate(lines):
        match = _DIRECTIVE.match(line.strip())
        name = match.group(1).lower() if match else ""
        if not match or name not in _DIRECTIVES:
            return found, index
        if name in found:
            raise _error(f"directive {name!r} stands twice", where, index + 1, "one of each", "remove one")
        found[name] = match.group(2)
    return found, len(lines)


def _is_comment_or_blank(line: str) -> bool:
    stripped = line.strip()
    return not stripped or stripped.startswith("#")


def _instruction(
    joined: str, lines: Sequence[str], start: int, index: int, escape: str, where: str
) -> tuple[Instruction, int]:
    """The instruction of the text ``joined``, which stood on lines ``start`` to ``index``, and the index behind it."""
    words = joined.split(maxsplit=1)
    keyword, rest = words[0].upper(), (words[1] if len(words) > 1 else "").strip()
    if keyword not in KEYWORDS:
        raise _error(f"unknown instruction {words[0]!r}", where, start + 1, "a Dockerfile instruction", "correct it")
    if not rest:
        raise _error(f"{keyword} without an argument", where, start + 1, "an argument", "add it or remove the line")
    flags, rest = _flags(rest) if keyword in _WITH_FLAGS else ((), rest)
    heredocs: list[Heredoc] = []
    if keyword in _WITH_HEREDOCS and json_form(rest) is None:
        for word in split_words(rest, escape):
            heredoc, index = _heredoc(word, lines, index, where, start + 1)
            if heredoc is not None:
                heredocs.append(heredoc)
    return Instruction(
        line=start + 1, end_line=index, keyword=keyword, rest=rest, flags=flags, heredocs=tuple(heredocs)
    ), index


def _join(lines: Sequence[str], start: int, escape: str) -> tuple[str, int]:
    """The whole instruction that begins on line ``start``, and the index behind its last line."""
    pieces: list[str] = []
    index = start
    while index < len(lines):
        line = lines[index].lstrip() if index == start else lines[index]
        index += 1
        if index > start + 1 and _is_comment_or_blank(line):
            continue
        body = line.rstrip(" \t")
        if not body.endswith(escape) or body.endswith(escape * 2):
            pieces.append(line)
            break
        pieces.append(body[:-1])
    return "".join(pieces).strip(), index


def _flags(rest: str) -> tuple[tuple[tuple[str, str], ...], str]:
    flags: list[tuple[str, str]] = []
    at = 0
    while match := _FLAG.match(rest, at):
        at = match.end()
        if not match.group(1):
            break
        name, _, value = match.group(1).partition("=")
        flags.append((name, value))
    return tuple(flags), rest[at:]


def _heredoc(word: str, lines: Sequence[str], index: int, where: str, line: int) -> tuple[Heredoc | None, int]:
    """The document that ``word`` opens (if it opens one), read from line ``index`` on, and the index behind it."""
    match = _HEREDOC.match(word)
    if match is None:
        return None, index
    descriptor, dash, raw = match.groups()
    name = raw.strip("'\"")
    if not name:
        return None, index
    body: list[str] = []
    for position in range(index, len(lines)):
        text = lines[position].lstrip("\t") if dash else lines[position]
        if text == name:
            content = "".join(piece + "\n" for piece in body)
            return Heredoc(name=name, content=content, expand=raw == name, descriptor=descriptor), position + 1
        body.append(text)
    raise _error(f"heredoc {name!r} has no end", where, line, f"a line with only {name}", "add it")


def _error(what: str, where: str, line: int, expected: str, mend: str) -> InputError:
    return InputError(what, where=f"{where}:{line}", expected=expected, mend=mend)
