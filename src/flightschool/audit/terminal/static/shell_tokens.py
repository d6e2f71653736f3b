"""Words and operators of a shell script (POSIX sh and the common parts of bash), read in one pass without running it.

Every position is looked at a bounded number of times and nesting is cut off, so that no script costs more than its
length times a constant.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Part", "Redirection", "Token", "Word", "tokens_of"]

_PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`]+")
_PLAIN_QUOTED = re.compile(r"[^\"\\$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]")
_REDIRECTION = re.compile(r"(\d*|\{\w{1,60}\})(&>>|&>|<<<|<<-|<<|<>|>>|>\||>&|<&|[<>])(?!\()")
_SPACE = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_BRACES = re.compile(r"[{}'\"\\]")
_PARENS = re.compile(r"[()'\"\\`#]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "0": "\0", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word."""

    kind: str
    """``text``, ``variable``, ``command`` (a substitution, also of a process) or ``arithmetic``."""
    text: str
    """The text, the variable's name, or the script inside."""
    quoted: bool = False
    modifier: str = ""
    """What follows the name in ``${name…}``."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word as written, in pieces."""

    parts: tuple[Part, ...]
    line: int

    def text(self, values: Mapping[str, str]) -> str:
        """The word with known variables in place; unknown ones stay as ``$NAME``, substitutions as ``$()``."""
        return "".join([_text_of(part, values) for part in self.parts])

    @property
    def bare(self) -> str:
        """The text of a word without quotes, variables and substitutions; empty for all others."""
        parts = self.parts
        return parts[0].text if len(parts) == 1 and parts[0].kind == "text" and not parts[0].quoted else ""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of variables in it."""
        return tuple(part.text for part in self.parts if part.kind == "variable")

    @property
    def commands(self) -> tuple[str, ...]:
        """Scripts of its substitutions."""
        return tuple(part.text for part in self.parts if part.kind == "command")


def _text_of(part: Part, values: Mapping[str, str]) -> str:
    if part.kind == "text":
        return part.text
    if part.kind == "variable":
        known = values.get(part.text)
        if known is not None and not part.modifier:
            return known
        if part.modifier[:2] in (":-", ":=") and not known:
            return part.modifier[2:].strip("\"'") if known is None and "$" not in part.modifier else f"${part.text}"
        return known if known is not None and part.modifier[:1] == ":" else f"${part.text}"
    return "$()"


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where input comes from or output goes."""

    descriptor: str
    operator: str
    target: Word
    document: str | None = None
    """Content of a heredoc or here-string."""


@dataclass(slots=True)
class Token:
    """A word, a redirection or an operator."""

    kind: str
    """``word``, ``redirection`` or ``operator``."""
    line: int
    text: str = ""
    """Of an operator."""
    word: Word | None = None
    redirection: Redirection | None = None
    documents: list[str] = field(default_factory=list)


def tokens_of(script: str, first_line: int = 1) -> list[Token]:
    """All tokens of a script, in order; its first line has the number ``first_line``."""
    return list(_Lexer(script, first_line).tokens())


class _Lexer:
    def __init__(self, script: str, first_line: int) -> None:
        self.script = script
        self.first_line = first_line
        self.at = 0
        self.in_test = False
        self._breaks = [match.start() for match in re.finditer("\n", script)]
        self._waiting: list[tuple[Token, str, bool]] = []

    def line(self, at: int | None = None) -> int:
        return bisect_right(self._breaks, (self.at if at is None else at) - 1) + self.first_line

    def tokens(self) -> Iterator[Token]:
        script, before = self.script, ""
        while self.at < len(script):
            char = script[self.at]
            space = _SPACE.match(script, self.at)
            if space:
                self.at = space.end()
                continue
            if char == "#":
                end = script.find("\n", self.at)
                self.at = len(script) if end < 0 else end
                continue
            token = self._token(char, before)
            before = token.text if token.kind == "operator" else (token.word.bare or "w") if token.word else "<"
            if token.kind == "word" and before in ("[[", "]]"):
                self.in_test = before == "[["
            yield token
            if token.kind == "operator" and token.text == "\n":
                self._read_documents()
                self.in_test = False

    def _token(self, char: str, before: str) -> Token:
        script, line = self.script, self.line()
        if script.startswith("((", self.at) and before in _BEFORE_COMMAND:
            return Token("word", line, word=Word((self._arithmetic(2),), line))
        redirection = None if self.in_test else _REDIRECTION.match(script, self.at)
        if redirection and not (char.isdigit() and before == "(("):
            return self._redirection(redirection, line)
        operator = _OPERATOR.match(script, self.at)
        if operator and not (self.in_test and char != "\n"):
            self.at = operator.end()
            return Token("operator", line, operator.group())
        if self.in_test and char in "<>()&|;":
            self.at += 1
            return Token("word", line, word=Word((Part("text", char),), line))
        return Token("word", line, word=self._word(line))

    def _redirection(self, match: re.Match[str], line: int) -> Token:
        self.at = match.end()
        operator = match.group(2)
        space = _SPACE.match(self.script, self.at)
        self.at = space.end() if space else self.at
        target = (
            self._word(line) if self.at < len(self.script) and self.script[self.at] not in "\n;|" else Word((), line)
        )
        document = target.text({}) + "\n" if operator == "<<<" else None
        token = Token(
            "redirection", line, redirection=Redirection(match.group(1), operator, target, document), word=None
        )
        if operator in ("<<", "<<-"):
            self._waiting.append((token, target.text({}), operator == "<<-"))
        return token

    def _read_documents(self) -> None:
        for token, name, dash in self._waiting:
            body: list[str] = []
            while self.at < len(self.script):
                end = self.script.find("\n", self.at)
                end = len(self.script) if end < 0 else end
                line = self.script[self.at : end]
                line = line.lstrip("\t") if dash else line
                self.at = end + 1
                if line == name:
                    break
                body.append(line + "\n")
            old = token.redirection
            if old is not None:
                token.redirection = Redirection(old.descriptor, old.operator, old.target, "".join(body))
        self._waiting = []

    # ------------------------------------------------------------------------------------------ words

    def _word(self, line: int) -> Word:
        script, parts = self.script, list[Part]()
        while self.at < len(script):
            plain = _PLAIN.match(script, self.at)
            if plain:
                parts.append(Part("text", plain.group()))
                self.at = plain.end()
                continue
            char = script[self.at]
            if char == "'":
                end = script.find("'", self.at + 1)
                end = len(script) if end < 0 else end
                parts.append(Part("text", script[self.at + 1 : end], True))
                self.at = end + 1
            elif char == '"':
                self.at += 1
                self._double(parts)
            elif char == "\\":
                if script[self.at + 1 : self.at + 2] != "\n":
                    parts.append(Part("text", script[self.at + 1 : self.at + 2], True))
                self.at += 2
            elif char in "$`":
                parts.append(self._dollar(quoted=False))
            elif char in "<>" and script.startswith("(", self.at + 1) and not parts:
                self.at += 1
                parts.append(Part("command", self._parenthesised()))
            elif char == "(" and parts and parts[-1].text.endswith("="):
                self.at += 0
                parts.append(Part("text", "(" + self._parenthesised() + ")", True))  # an array
            else:
                break
        if not parts and self.at < len(script) and not script[self.at].isspace():
            parts.append(Part("text", script[self.at]))
            self.at += 1
        return Word(_joined(parts), line)

    def _double(self, parts: list[Part]) -> None:
        script, empty = self.script, True
        while self.at < len(script) and script[self.at] != '"':
            empty = False
            plain = _PLAIN_QUOTED.match(script, self.at)
            if plain:
                parts.append(Part("text", plain.group(), True))
                self.at = plain.end()
            elif script[self.at] == "\\":
                after = script[self.at + 1 : self.at + 2]
                parts.append(Part("text", after if after in '$`"\\' else "" if after == "\n" else "\\" + after, True))
                self.at += 2
            else:
                parts.append(self._dollar(quoted=True))
        if empty:
            parts.append(Part("text", "", True))
        self.at += 1

    def _dollar(self, *, quoted: bool) -> Part:
        script = self.script
        if script[self.at] == "`":
            end = script.find("`", self.at + 1)
            end = len(script) if end < 0 else end
            inner, self.at = script[self.at + 1 : end], end + 1
            return Part("command", inner, quoted)
        if script.startswith("$(", self.at) and not script.startswith("$((", self.at):
            self.at += 1
            return Part("command", self._parenthesised(), quoted)
        if script.startswith("${", self.at):
            return self._braced(quoted)
        if script.startswith("$((", self.at) or (script.startswith("$'", self.at) and not quoted):
            return self._escaped() if script[self.at + 1] == "'" else self._arithmetic(3)
        name = _NAME.match(script, self.at + 1)
        self.at += 1
        if name is None:
            return Part("text", "$", True)
        self.at = name.end()
        return Part("variable", name.group(), quoted)

    def _braced(self, quoted: bool) -> Part:
        start, depth = self.at + 2, 1
        at = start
        while depth and (match := _BRACES.search(self.script, at)):
            char, at = match.group(), match.end()
            depth += {"{": 1, "}": -1}.get(char, 0)
            at += char == "\\"
        end = at - 1 if not depth else len(self.script)
        self.at = at if not depth else len(self.script)
        inner = self.script[start:end].lstrip("#!")
        name = _NAME.match(inner)
        if name is None:
            return Part("text", "$", True)
        return Part("variable", name.group(), quoted, inner[name.end() :])

    def _escaped(self) -> Part:
        out, at = "", self.at + 2
        while at < len(self.script) and self.script[at] != "'":
            if self.script[at] == "\\":
                after = self.script[at + 1 : at + 2]
                out += _ESCAPES.get(after, "\\" + after)
                at += 2
            else:
                out += self.script[at]
                at += 1
        self.at = at + 1
        return Part("text", out, True)

    def _arithmetic(self, length: int) -> Part:
        start = self.at + length
        end = self.script.find("))", start)
        end = len(self.script) if end < 0 else end
        self.at = end + 2
        return Part("arithmetic", self.script[start:end])

    def _parenthesised(self) -> str:
        """What stands in the parentheses that open here."""
        start, depth, at = self.at + 1, 1, self.at + 1
        while depth and (match := _PARENS.search(self.script, at)):
            char, at = match.group(), match.end()
            if char == "\\":
                at += 1
            elif char in "'\"`":
                at = self._behind_quote(char, at)
            elif char == "#":
                if self.script[at - 2 : at - 1].isspace():
                    end = self.script.find("\n", at)
                    at = len(self.script) if end < 0 else end
            else:
                depth += 1 if char == "(" else -1
        self.at = at if not depth else len(self.script)
        return self.script[start : self.at - 1 if not depth else self.at]

    def _behind_quote(self, quote: str, at: int) -> int:
        while True:
            end = self.script.find(quote, at)
            if end < 0:
                return len(self.script)
            at = end + 1
            if quote == "'" or self.script[end - 1] != "\\":
                return at


_BEFORE_COMMAND = frozenset(
    ["", ";", "&", "|", "&&", "||", "\n", "(", "if", "while", "until", "elif", "then", "else", "do", "!", "{"]
)


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring pieces of text as one."""
    if len(parts) < 2:
        return tuple(parts)
    out: list[Part] = []
    for part in parts:
        if out and part.kind == "text" == out[-1].kind:
            out[-1] = Part("text", out[-1].text + part.text, out[-1].quoted or part.quoted)
        else:
            out.append(part)
    return tuple(out)
