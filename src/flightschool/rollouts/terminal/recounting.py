"""What a program did in a terminal task, told as events, so that a scan and a reviewer see more than its reward.

Two kinds of call, one *turn* a stage: ``shell`` (or ``program``), a statement of the program as it was written, and
``file_written``, a path that it really wrote, read from its end state after it was dead. What was written is a fact;
what stands in the program may never have run. All of it is text of the policy's: bounded, decoded with replacements,
executed by no one. Output is left out of events: it differs from run to run, and stands in ``StageResult``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from flightschool.digest import digest
from flightschool.records import Effect, Json, ToolCall, ToolEvent, ToolResult
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["FILE_WRITTEN", "PROGRAM", "SHELL", "recount"]

SHELL: Final = "shell"
PROGRAM: Final = "program"
FILE_WRITTEN: Final = "file_written"

MOST_PROGRAM_BYTES: Final = 64 << 10
"""Read of a program; the rest is told by its digest."""
MOST_STATEMENTS: Final = 200
LONGEST_STATEMENT: Final = 4000
MOST_PATHS: Final = 200
LONGEST_PATH: Final = 1000
_SHELLS: Final = re.compile(r"(^|/)(ba|da|z|k|a)?sh$")
_PYTHONS: Final = re.compile(r"(^|/)python[\d.]*$")
_HEREDOC: Final = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_]\w*)\2")


def recount(
    words: Sequence[str], program: bytes, changes: Sequence[Written], *, stage: int, first: int
) -> tuple[ToolEvent, ...]:
    """The events of one stage.

    Args:
        words: the command that ran the program; none where nothing ran.
        program: its text, or a binary.
        changes: what it left.
        stage: its number, from 0.
        first: index of the first event.
    """
    told = [*_told(words, program), *((FILE_WRITTEN, {"path": path}) for path in _paths(changes))] if words else []
    return tuple(
        ToolEvent(
            index=first + number,
            turn=stage,
            call=ToolCall(id=f"{stage}-{number}", name=name, arguments=arguments),
            result=ToolResult(call_id=f"{stage}-{number}", content="", served_by="terminal"),
            effect=Effect.WRITE,
            start_ms=0.0,
            end_ms=0.0,
        )
        for number, (name, arguments) in enumerate(told)
    )


def _told(words: Sequence[str], program: bytes) -> Iterator[tuple[str, dict[str, Json]]]:
    head = program[:MOST_PROGRAM_BYTES]
    if b"\0" in head:
        yield PROGRAM, {"binary": digest(program), "num_bytes": len(program)}
        return
    text = head.decode("utf-8", "replace")
    name, statements = _statements(_interpreter(words, text), text)
    number = 0
    for statement in statements:
        if number == MOST_STATEMENTS:
            break
        number += 1
        yield name, {"command": statement[:LONGEST_STATEMENT]}
    if number == MOST_STATEMENTS or len(program) > MOST_PROGRAM_BYTES:
        yield PROGRAM, {"cut": digest(program), "num_bytes": len(program)}


def _interpreter(words: Sequence[str], text: str) -> str:
    line = text.partition("\n")[0]
    named = line[2:].split() if line.startswith("#!") else []
    if named and named[0].endswith("/env"):
        named = [word for word in named[1:] if not word.startswith("-")]
    return named[0] if named else words[0]


def _statements(interpreter: str, text: str) -> tuple[str, Iterator[str]]:
    if _SHELLS.search(interpreter):
        return SHELL, shell_statements(text)
    if _PYTHONS.search(interpreter):
        return PROGRAM, _python_statements(text)
    return PROGRAM, iter([text] if text.strip() else [])


def _python_statements(text: str) -> Iterator[str]:
    """Top-level statements; the whole text where it cannot be parsed."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield text
        return
    lines = text.splitlines()
    for node in body:
        yield "\n".join(lines[node.lineno - 1 : node.end_lineno])


def shell_statements(text: str) -> Iterator[str]:
    """Statements of a shell script as they stand: cut at ends of lines, ``;``, ``&&``, ``||`` outside of quotes.

    Documents (``<<EOF``) stay with the statement that reads them; a pipeline is one statement. Words that only open or
    close a block count for nothing. This is reading, not a shell: nothing is expanded.
    """
    for piece in _pieces(text):
        bare = piece.strip()
        if bare and not bare.startswith("#") and bare not in _BARE:
            yield bare


_BARE: Final = frozenset({"{", "}", "(", ")", "then", "else", "fi", "do", "done", "esac", ";;", "true", ":"})


def _pieces(text: str) -> Iterator[str]:
    start = at = 0
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 2
        elif quote:
            quote = "" if char == quote else quote
            at += 1
        elif char in "'\"":
            quote = char
            at += 1
        elif char == "#" and (at == start or text[at - 1].isspace()):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char == "\n":
            at = _past_documents(text, text[start:at], at + 1)
            yield text[start:at]
            start = at
        elif char == ";" or text.startswith(("&&", "||"), at):
            yield text[start:at]
            at += 1 if char == ";" else 2
            start = at
        else:
            at += 1
    yield text[start:]


def _past_documents(text: str, line: str, at: int) -> int:
    """Where the documents that a line opens end; ``at`` where it opens none."""
    for match in _HEREDOC.finditer(line):
        dash, name = match.group(1), match.group(3)
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            row = text[at:end]
            at = min(end + 1, len(text))
            if (row.lstrip("\t") if dash else row) == name:
                break
    return at


def _paths(changes: Sequence[Written]) -> list[str]:
    """Files and links that were written or removed, in the order of their paths; folders tell nothing more."""
    paths = sorted(entry.path for entry in changes if entry.kind is not WrittenKind.FOLDER)
    told = [path.encode("utf-8", "replace").decode()[:LONGEST_PATH] for path in paths[:MOST_PATHS]]
    return [*told, f"… and {len(paths) - MOST_PATHS} more"] if len(paths) > MOST_PATHS else told
