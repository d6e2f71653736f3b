"""Words of a Dockerfile: quotes, escapes and variables, as the builder substitutes them (no shell is asked).

Forms of variables: ``$name`` ``${name}`` ``${name:-word}`` ``${name-word}`` ``${name:+word}`` ``${name+word}``
``${name:?message}`` ``${name?message}`` ``${name#pattern}`` ``##`` ``%`` ``%%`` ``${name/pattern/text}`` ``//``.
An unset variable is empty. In single quotes nothing is substituted; in double quotes the escape character protects
``"``, ``$`` and itself only; elsewhere it protects whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from flightschool.environments.terminal.ignoring import wildcard_regex

__all__ = ["SubstitutionError", "expand_text", "expand_word", "name_values", "split_words"]

MAX_VALUE = 1 << 17
"""Longest text that variables may grow to: no program could be started with a longer one. ``A=$A$A`` doubles."""
MAX_PATTERN_VALUE = 4096
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?\-$!]")


class SubstitutionError(ValueError):
    """A word cannot be read; the text says why. Callers add the line."""


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Cut at white space outside of quotes; quotes and escapes stay as they are written."""
    words: list[str] = []
    word, quote, index = "", "", 0
    while index < len(text):
        char = text[index]
        if char == escape and quote != "'" and index + 1 < len(text):
            word += text[index : index + 2]
            index += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            if word:
                words.append(word)
            word = ""
            index += 1
            continue
        word += char
        index += 1
    return [*words, word] if word else words


def name_values(text: str, values: Mapping[str, str], escape: str = "\\") -> dict[str, str]:
    """The assignments of one ``ENV``: ``K=V …``, or the old form ``K the whole rest``.

    All values see the variables as they were before the instruction.

    Raises:
        SubstitutionError: a word without ``=`` among assignments, or a word that cannot be read.
    """
    words = split_words(text, escape)
    if words and "=" not in words[0]:
        name, *rest = text.split(maxsplit=1)
        if not rest:
            raise SubstitutionError(f"{name!r} has no value")
        return {expand_word(name, values, escape): expand_word(rest[0].strip(), values, escape)}
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SubstitutionError(f"{word!r} is no assignment")
        found[expand_word(name, values, escape)] = expand_word(value, values, escape)
    return found


def expand_word(word: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """``word`` with variables substituted, quotes and escapes taken away.

    Raises:
        SubstitutionError: quotes or braces without end, or ``${name:?}`` of an unset name.
    """
    text, _ = _Reader(word, values, escape).until("")
    return text


def expand_text(text: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """A document (heredoc) with variables substituted; quotes are ordinary characters there."""
    return _Reader(text, values, escape, quotes=False).until("")[0]


class _Reader:
    """Reads one word from left to right."""

    def __init__(self, text: str, values: Mapping[str, str], escape: str, quotes: bool = True) -> None:
        self.text = text
        self.values = values
        self.escape = escape
        self.quotes = quotes
        self.at = 0
        self.num_substituted = 0

    def until(self, stops: str) -> tuple[str, str]:
        """Everything up to one of the characters in ``stops`` (taken as well), and that character."""
        out: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in stops:
                self.at += 1
                return "".join(out), char
            if char == "'" and self.quotes:
                out.append(self._single())
            elif char == '"' and self.quotes:
                out.append(self._double())
            elif char == "$":
                out.append(self._variable())
            elif char == self.escape:
                out.append(self._escaped())
            else:
                out.append(char)
                self.at += 1
        if stops:
            raise SubstitutionError(f"no {' or '.join(stops)} after a brace in {self.text!r}")
        return "".join(out), ""

    def _escaped(self) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if self.quotes or following in ("$", self.escape):
            return following
        return self.escape + following

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise SubstitutionError(f"no closing single quote in {self.text!r}")
        inner, self.at = self.text[self.at + 1 : end], end + 1
        return inner

    def _double(self) -> str:
        out: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(out)
            if char == "$":
                out.append(self._variable())
                continue
            following = self.text[self.at + 1 : self.at + 2]
            if char == self.escape and following and following in f'"${self.escape}':
                out.append(following)
                self.at += 2
                continue
            out.append(char)
            self.at += 1
        raise SubstitutionError(f"no closing double quote in {self.text!r}")

    def _variable(self) -> str:
        self.at += 1
        braced = self.text[self.at : self.at + 1] == "{"
        match = _NAME.match(self.text, self.at + braced)
        if match is None:
            if braced:
                raise SubstitutionError(f"a brace without a name in {self.text!r}")
            return "$"
        name, self.at = match.group(), match.end()
        text = self._braced(name) if braced else self.values.get(name, "")
        self.num_substituted += len(text)
        if self.num_substituted > MAX_VALUE:
            raise SubstitutionError(f"variables grow to more than {MAX_VALUE} characters")
        return text

    def _braced(self, name: str) -> str:
        operator = next((op for op in (":-", ":+", ":?", "##", "%%", "//") if self.text.startswith(op, self.at)), "")
        operator = operator or self.text[self.at : self.at + 1]
        self.at += len(operator)
        value = self.values.get(name)
        if operator == "}":
            return value or ""
        if operator in ("/", "//"):
            pattern, stop = self.until("/}")
            text = self.until("}")[0] if stop == "/" else ""
            return _replaced(value or "", pattern, text, count=0 if operator == "//" else 1)
        if operator not in (":-", ":+", ":?", "-", "+", "?", "#", "##", "%", "%%"):
            raise SubstitutionError(f"unknown form of a variable in {self.text!r}")
        word, _ = self.until("}")
        if operator[0] in "#%":
            return _cut(value or "", operator, word)
        there = bool(value) if operator.startswith(":") else value is not None
        return self._conditional(name, operator[-1], word, value or "", there)

    def _conditional(self, name: str, operator: str, word: str, value: str, there: bool) -> str:
        if operator == "+":
            return word if there else ""
        if there:
            return value
        if operator == "-":
            return word
        raise SubstitutionError(f"{name}: {word or 'not set'}")


def _replaced(value: str, pattern: str, text: str, count: int) -> str:
    if pattern.count("*") > 1 or len(value) > MAX_PATTERN_VALUE:
        # The longest match of several * can take very long to find.
        raise SubstitutionError("a replacement with more than one * is not read here")
    if not pattern:
        return value
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.sub("(?s:" + "".join(parts) + ")", lambda _: text, value, count=count)


def _cut(value: str, operator: str, pattern: str) -> str:
    """``value`` without the shortest (``#`` ``%``) or longest (``##`` ``%%``) matching piece at its start or end."""
    if len(value) > MAX_PATTERN_VALUE:
        raise SubstitutionError(f"a pattern on a value of more than {MAX_PATTERN_VALUE} characters is not read here")
    matches = re.compile(wildcard_regex(pattern.replace("[", "\\[")), re.DOTALL).fullmatch
    cuts = range(len(value) + 1)
    order = cuts if operator in ("#", "%%") else cuts[::-1]
    for cut in order:
        if operator[0] == "#" and matches(value[:cut]):
            return value[cut:]
        if operator[0] == "%" and matches(value[cut:]):
            return value[:cut]
    return value
