"""``.dockerignore``: which paths of a build context do not exist for the build.

The last pattern that matches a path or one of its folders decides; ``!`` brings back. Patterns are those of Go's
``filepath.Match`` (``*`` and ``?`` stop at ``/``) with ``**`` for any number of folders, read from the top of
the context.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

__all__ = ["IgnoreRules", "PathPattern", "wildcard_regex"]


class IgnoreRules:
    """The patterns of one ignore file."""

    def __init__(self, text: str = "") -> None:
        self._rules: list[tuple[bool, PathPattern]] = []
        for line in text.splitlines():
            pattern = line.strip()
            if line.startswith("#") or not pattern:
                continue
            cleaned = posixpath.normpath(pattern.removeprefix("!").strip()).lstrip("/")
            if cleaned not in ("", "."):
                self._rules.append((pattern.startswith("!"), PathPattern(cleaned)))

    def __call__(self, path: str) -> bool:
        """Whether ``path`` (relative, normal) is left out."""
        left_out = False
        for brings_back, pattern in self._rules:
            if left_out is brings_back and pattern.covers(path):
                left_out = not brings_back
        return left_out

    def kept(self, paths: Iterable[str]) -> list[str]:
        """Paths that are not left out."""
        return [path for path in paths if not self(path)]


class PathPattern:
    """A pattern of a path, matched folder by folder, so that no pattern of a hostile task takes long."""

    def __init__(self, pattern: str) -> None:
        parts = pattern.split("/")
        self._parts = [None if part == "**" else re.compile(wildcard_regex(part), re.DOTALL) for part in parts]

    def matches(self, path: str) -> bool:
        """Whether the whole path matches."""
        return len(self._parts) in self._states(path, stop=False)

    def covers(self, path: str) -> bool:
        """Whether the path or one of the folders that it lies in matches."""
        return len(self._parts) in self._states(path, stop=True)

    def _states(self, path: str, *, stop: bool) -> set[int]:
        """How many parts of the pattern may be used up behind the path, or behind its first folder that uses up all."""
        end = len(self._parts)
        states = self._skip({0})
        for name in path.split("/"):
            behind: set[int] = set()
            for state in states - {end}:
                part = self._parts[state]
                if part is None:
                    behind |= {state, state + 1}
                elif part.fullmatch(name):
                    behind.add(state + 1)
            states = self._skip(behind)
            if stop and end in states:
                break
        return states

    def _skip(self, states: set[int]) -> set[int]:
        """``**`` may stand for no folder at all, unless it is the last: then it means something inside."""
        todo, found = list(states), set(states)
        while todo:
            state = todo.pop()
            if state < len(self._parts) - 1 and self._parts[state] is None and state + 1 not in found:
                found.add(state + 1)
                todo.append(state + 1)
        return found


def wildcard_regex(pattern: str) -> str:
    """The regular expression of a name with ``*``, ``?``, ``[…]`` and escapes. A broken character class is itself.

    Everything behind a ``*`` takes its first chance and keeps it (an atomic group), which for such patterns finds the
    same and needs no backtracking.
    """
    pieces, index = [""], 0
    while index < len(pattern):
        char = pattern[index]
        if char == "*":
            pieces.append("")
            index += 1
        elif char == "?":
            pieces[-1] += "."
            index += 1
        elif char == "[":
            piece, index = _character_class(pattern, index)
            pieces[-1] += piece
        else:
            if char == "\\" and index + 1 < len(pattern):
                index += 1
            pieces[-1] += re.escape(pattern[index])
            index += 1
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{middle}.*{pieces[-1]}"


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    end = pattern.find("]", start + 2)
    if end < 0:
        return re.escape("["), start + 1
    inner = pattern[start + 1 : end]
    negated = inner.startswith("^")
    inner = inner.removeprefix("^").replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("&", "\\&")
    inner = inner.replace("~", "\\~").replace("|", "\\|").replace("--", "\\-\\-")
    try:
        re.compile(f"[{inner}]")
    except re.error:
        return re.escape("["), start + 1
    return f"[{'^' if negated else ''}{inner}]", end + 1
