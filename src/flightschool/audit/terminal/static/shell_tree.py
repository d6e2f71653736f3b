"""The tree of a shell script: pipelines, lists, conditions, loops, functions. What cannot be read is skipped."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from flightschool.audit.terminal.static.shell_tokens import Part, Redirection, Token, Word, tokens_of

__all__ = [
    "AndOr",
    "Branch",
    "Command",
    "Function",
    "Group",
    "Item",
    "Loop",
    "Node",
    "Pipeline",
    "is_bare",
    "is_negated",
    "parse_shell",
]

MOST_DEPTH = 40
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]{0,80}\])?\+?=")
_ENDS = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])


@dataclass(slots=True)
class Command:
    """A simple command, a ``[[ ]]`` or an ``(( ))``."""

    words: list[Word]
    line: int
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """``{ }`` or ``( )``."""

    items: list[Item]
    line: int
    subshell: bool = False
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(slots=True)
class Branch:
    """``if`` or ``case``: conditions with what runs under each; the last condition may be None (else)."""

    arms: list[tuple[list[Item] | None, list[Item]]]
    line: int
    subject: Word | None = None
    """Of a ``case``."""
    patterns: list[tuple[str, ...]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(slots=True)
class Loop:
    """``for``, ``while`` or ``until``."""

    condition: list[Item]
    body: list[Item]
    line: int
    name: str = ""
    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A definition."""

    name: str
    body: list[Item]
    line: int
    redirections: list[Redirection] = field(default_factory=list)


Node: TypeAlias = Command | Group | Branch | Loop | Function


@dataclass(slots=True)
class Pipeline:
    """Commands joined by ``|``."""

    commands: list[Node]
    negated: bool = False


@dataclass(slots=True)
class AndOr:
    """Pipelines joined by ``&&`` and ``||``; ``operators[i]`` stands before ``pipelines[i + 1]``."""

    pipelines: list[Pipeline]
    operators: list[str] = field(default_factory=list)
    background: bool = False


Item: TypeAlias = AndOr


def parse_shell(script: str, first_line: int = 1) -> list[Item]:
    """The script's commands in order."""
    parser = _Parser(tokens_of(script, first_line))
    items: list[Item] = []
    while parser.at < len(parser.tokens):
        before = parser.at
        items += parser.items(frozenset())
        if parser.at == before:
            parser.at += 1  # something that closes what was not opened
    return items


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def _bare(self) -> str:
        """The unquoted word here; empty: another token."""
        if self.at >= len(self.tokens):
            return ""
        word = self.tokens[self.at].word
        return word.bare if word is not None else ""

    def _operator(self) -> str:
        if self.at >= len(self.tokens):
            return ""
        token = self.tokens[self.at]
        return token.text if token.kind == "operator" else ""

    def _skip(self, operators: str = "\n;") -> None:
        while self._operator() and self._operator() in operators:
            self.at += 1

    def items(self, ends: frozenset[str]) -> list[Item]:
        """Commands up to a closing word or operator, which is left in place."""
        found: list[Item] = []
        while self.at < len(self.tokens):
            self._skip()
            operator, bare = self._operator(), self._bare()
            if operator in (")", ";;", ";&", ";;&") or bare in ends or (bare in _ENDS and bare):
                break
            before = self.at
            item = self._and_or()
            if item is not None:
                found.append(item)
            if self._operator() == "&":
                self.at += 1
                if item is not None:
                    item.background = True
            if self.at == before:
                self.at += 1
        return found

    def _and_or(self) -> AndOr | None:
        first = self._pipeline()
        if first is None:
            return None
        chain = AndOr([first])
        while self._operator() in ("&&", "||"):
            operator = self._operator()
            self.at += 1
            self._skip("\n")
            following = self._pipeline()
            if following is None:
                break
            chain.operators.append(operator)
            chain.pipelines.append(following)
        return chain

    def _pipeline(self) -> Pipeline | None:
        negated = False
        while self._bare() in ("!", "time"):
            negated ^= self._bare() == "!"
            self.at += 1
        first = self._node()
        if first is None:
            return None
        pipeline = Pipeline([first], negated)
        while self._operator() in ("|", "|&"):
            self.at += 1
            self._skip("\n")
            following = self._node()
            if following is None:
                break
            pipeline.commands.append(following)
        return pipeline

    def _node(self) -> Node | None:
        if self.at >= len(self.tokens):
            return None
        if self.depth >= MOST_DEPTH:
            self.at = len(self.tokens)
            return None
        self.depth += 1
        try:
            node = self._compound() or self._simple()
        finally:
            self.depth -= 1
        if node is not None and not isinstance(node, Command):
            while self.at < len(self.tokens) and (redirection := self.tokens[self.at].redirection):
                node.redirections.append(redirection)
                self.at += 1
        return node

    def _compound(self) -> Node | None:
        line = self.tokens[self.at].line
        if self._operator() == "(":
            self.at += 1
            items = self.items(frozenset())
            self._expect_operator(")")
            return Group(items, line, subshell=True)
        reader: Callable[[int], Node] | None = {
            "{": self._group,
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "select": self._for,
            "while": self._while,
            "until": self._while,
            "function": self._function,
        }.get(self._bare())
        if reader is not None:
            self.at += 1
            return reader(line)
        return self._named_function(line)

    def _expect_operator(self, text: str) -> None:
        if self._operator() == text:
            self.at += 1

    def _expect(self, word: str) -> bool:
        self._skip()
        if self._bare() == word:
            self.at += 1
            return True
        return False

    def _group(self, line: int) -> Node:
        items = self.items(frozenset(["}"]))
        self._expect("}")
        return Group(items, line)

    def _if(self, line: int) -> Node:
        arms: list[tuple[list[Item] | None, list[Item]]] = []
        condition: list[Item] | None = self.items(frozenset(["then"]))
        while True:
            self._expect("then")
            arms.append((condition, self.items(frozenset(["elif", "else", "fi"]))))
            if self._bare() == "elif":
                self.at += 1
                condition = self.items(frozenset(["then"]))
            elif self._bare() == "else" and condition is not None:
                self.at += 1
                condition = None
            else:
                break
        self._expect("fi")
        return Branch(arms, line)

    def _case(self, line: int) -> Node:
        subject = self.tokens[self.at].word if self.at < len(self.tokens) else None
        self.at += 1
        self._expect("in")
        branch = Branch([], line, subject=subject or Word((), line))
        while self.at < len(self.tokens):
            self._skip()
            if self._bare() == "esac":
                break
            patterns: list[str] = []
            while self.at < len(self.tokens) and self._operator() != ")":
                word = self.tokens[self.at].word
                patterns += [word.text({})] if word is not None else []
                self.at += 1
            self.at += 1
            branch.patterns.append(tuple(patterns))
            branch.arms.append(([], self.items(frozenset(["esac"]))))
            if self._operator() in (";;", ";&", ";;&"):
                self.at += 1
            elif self._bare() != "esac":
                break
        self._expect("esac")
        return branch

    def _for(self, line: int) -> Node:
        name = self._bare()
        self.at += 1
        words: list[Word] = []
        self._skip("\n")
        if self._bare() == "in":
            self.at += 1
            while self.at < len(self.tokens) and (word := self.tokens[self.at].word) is not None:
                words.append(word)
                self.at += 1
        return self._loop_body(Loop([], [], line, name=name, words=words))

    def _while(self, line: int) -> Node:
        return self._loop_body(Loop(self.items(frozenset(["do"])), [], line))

    def _loop_body(self, loop: Loop) -> Loop:
        if self._expect("do"):
            loop.body = self.items(frozenset(["done"]))
            self._expect("done")
        return loop

    def _function(self, line: int) -> Node:
        name = self._bare()
        self.at += 1
        if self._operator() == "(":
            self.at += 1
            self._expect_operator(")")
        return self._function_body(name, line)

    def _named_function(self, line: int) -> Node | None:
        following = self.tokens[self.at + 1 : self.at + 3]
        name = self._bare()
        if not name or [token.text for token in following] != ["(", ")"]:
            return None
        self.at += 3
        return self._function_body(name, line)

    def _function_body(self, name: str, line: int) -> Node:
        self._skip("\n")
        body = self._node()
        if isinstance(body, Group):
            return Function(name, body.items, line)
        return Function(name, [AndOr([Pipeline([body])])] if body is not None else [], line)

    def _simple(self) -> Command | None:
        command = Command([], self.tokens[self.at].line)
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.redirection is not None:
                command.redirections.append(token.redirection)
            elif token.word is not None:
                self._add(command, token.word)
            else:
                break
            self.at += 1
        return command if command.words or command.redirections or command.assignments else None

    @staticmethod
    def _add(command: Command, word: Word) -> None:
        first = word.parts[0] if word.parts else None
        match = _ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" else None
        if command.words or match is None or first is None:
            command.words.append(word)
            return
        rest = first.text[match.end() :]
        parts = ((Part("text", rest, first.quoted),) if rest or len(word.parts) == 1 else ()) + word.parts[1:]
        command.assignments.append((match.group(1), Word(parts, word.line)))


def is_bare(items: list[Item], word: str) -> bool:
    """Whether a list is one command of one given word."""
    if len(items) != 1 or len(items[0].pipelines) != 1 or len(items[0].pipelines[0].commands) != 1:
        return False
    command = items[0].pipelines[0].commands[0]
    return isinstance(command, Command) and len(command.words) == 1 and command.words[0].bare == word


def is_negated(items: list[Item]) -> bool:
    """Whether a condition ends with a pipeline behind ``!``."""
    return bool(items) and items[-1].pipelines[-1].negated
