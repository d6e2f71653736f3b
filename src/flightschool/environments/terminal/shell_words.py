"""The simple commands of a shell script, read without running it: enough to see what a RUN step asks for.

This is reading, not a shell: variables are substituted where their values are known and stay visible as ``$`` where
they are not, branches are all taken, and what stands in ``$( )`` counts as a command of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["simple_commands"]

_OPERATORS = ";&|(){}\n"
_LEADING = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "time"})
_CLOSING = frozenset({"fi", "done", "esac"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_REDIRECTION = re.compile(r"[0-9]*(?:>>?|<)&?")
_MOST_NESTING = 8


def simple_commands(script: str, values: Mapping[str, str] | None = None, depth: int = 0) -> Iterator[list[str]]:
    """Words of each command, assignments in front and redirections taken away."""
    if depth > _MOST_NESTING:
        return
    known = dict(values or {})
    for words, inner in _Reader(script, known).commands():
        for text in inner:
            yield from simple_commands(text, known, depth + 1)
        while words and (words[0] in _LEADING or _ASSIGNMENT.match(words[0])):
            if words[0] not in _LEADING:
                name, _, value = words[0].partition("=")
                known[name.rstrip("+")] = value
            words = words[1:]
        if words and words[0] not in _CLOSING and words[0] not in ("for", "case", "function"):
            yield words


class _Reader:
    def __init__(self, script: str, values: dict[str, str]) -> None:
        self.script = script.replace("\\\n", "")
        self.values = values
        self.at = 0
        self.inner: list[str] = []
        self.documents: list[tuple[str, bool]] = []

    def commands(self) -> Iterator[tuple[list[str], list[str]]]:
        """(words, texts of command substitutions) of each command."""
        words: list[str] = []
        while self.at < len(self.script):
            char = self.script[self.at]
            if char in _OPERATORS:
                self.at += 1
                if words or self.inner:
                    yield words, self.inner
                words, self.inner = [], []
                if char == "\n":
                    self._skip_documents()
            elif char.isspace():
                self.at += 1
            elif char == "#":
                self._skip_to("\n")
            elif char in "<>" or _REDIRECTION.match(self.script, self.at):
                self._redirection()
            else:
                words += self._word()
        if words or self.inner:
            yield words, self.inner

    def _skip_to(self, text: str) -> None:
        end = self.script.find(text, self.at)
        self.at = len(self.script) if end < 0 else end

    def _skip_documents(self) -> None:
        for name, dash in self.documents:
            while self.at < len(self.script):
                end = self.script.find("\n", self.at)
                end = len(self.script) if end < 0 else end
                line = self.script[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if dash else line) == name:
                    break
        self.documents = []

    def _redirection(self) -> None:
        document = _HEREDOC.match(self.script, self.at)
        if document:
            self.documents.append((document.group(3), bool(document.group(1))))
            self.at = document.end()
            return
        match = _REDIRECTION.match(self.script, self.at)
        self.at = match.end() if match else self.at + 1
        while self.script[self.at : self.at + 1] in (" ", "\t", "<", ">"):
            self.at += 1
        if self.at < len(self.script) and self.script[self.at] not in _OPERATORS:
            self._word()  # where it leads does not matter

    def _word(self) -> list[str]:
        """One word; several when an unquoted variable holds several."""
        out, quoted, begin = "", False, self.at
        while self.at < len(self.script):
            char = self.script[self.at]
            if char.isspace() or char in ";&|()\n<>":
                break
            if char == "}" and begin != self.at and "{" not in out:
                break
            if char == "'":
                quoted = True
                end = self.script.find("'", self.at + 1)
                end = len(self.script) if end < 0 else end
                out += self.script[self.at + 1 : end]
                self.at = end + 1
            elif char == '"':
                quoted = True
                out += self._double()
            else:
                out += self._bare(char)
        if quoted or not out:
            return [out]
        return out.split() or [out]

    def _double(self) -> str:
        out = ""
        self.at += 1
        while self.at < len(self.script) and self.script[self.at] != '"':
            out += self._bare(self.script[self.at])
        self.at += 1
        return out

    def _bare(self, char: str) -> str:
        """What the character here stands for, where no quote begins: itself, the next one, or a value."""
        if char in "$`":
            return self._dollar()
        taken = 2 if char == "\\" else 1
        self.at += taken
        return self.script[self.at - 1 : self.at]

    def _dollar(self) -> str:
        if self.script[self.at] == "`":
            end = self.script.find("`", self.at + 1)
            return self._substitution(self.at + 1, len(self.script) if end < 0 else end)
        if self.script.startswith("$(", self.at):
            depth, end = 1, self.at + 2
            while end < len(self.script) and depth:
                depth += {"(": 1, ")": -1}.get(self.script[end], 0)
                end += 1
            return self._substitution(self.at + 2, end - 1 if not depth else end)
        match = _VARIABLE.match(self.script, self.at)
        if match is None:
            self.at += 1
            return "$"
        self.at = match.end()
        return self.values.get(match.group(1) or match.group(2), match.group())

    def _substitution(self, start: int, end: int) -> str:
        self.inner.append(self.script[start:end])
        self.at = end + 1
        return "$()"
