"""Texts with values in them: which words are always the same, and where the others come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from flightschool.environments.inferred.addresses import addresses
from flightschool.environments.inferred.arithmetic import STYLES, evaluate_arithmetic
from flightschool.environments.inferred.language import Const, Expr, Missing, Reckoned, Scope, Text, evaluate, shown
from flightschool.records import Json

__all__ = ["explain_text", "explain_written", "masked", "words"]

_WORD = re.compile(r"[\w]+(?:[-.:/@+]+[\w]+)*|\s+|[^\w\s]")
_MOST_WORDS = 80


def words(text: str) -> list[str]:
    """Words, spaces and marks; together they are the text."""
    return _WORD.findall(text)


def masked(text: str) -> str:
    """A text with all words masked that hold a digit: texts of one kind are equal then."""
    return "".join("#" if any(char.isdigit() for char in word) else word for word in words(text))


def explain_text(
    cases: Sequence[tuple[Scope, Json]], explain_word: Callable[[Sequence[tuple[Scope, Json]]], Expr | None]
) -> Expr | None:
    """A text whose changing words are explained one by one, or the value of arithmetic that is written somewhere."""
    reckoned = explain_written(cases)
    if reckoned is not None:
        return reckoned
    split = [words(text) for _, text in cases]
    if not split[0] or len({len(row) for row in split}) > 1 or len(split[0]) > _MOST_WORDS:
        return None
    if len(split[0]) == 1:
        return None
    parts: list[Expr] = []
    for position in range(len(split[0])):
        column = [row[position] for row in split]
        if all(word == column[0] for word in column):
            parts.append(_word_of_one(cases[0][0], column[0]) if len(cases) == 1 else Const(value=column[0]))
            continue
        scopes = [scope for scope, _ in cases]
        found = explain_word(list(zip(scopes, column, strict=True)))
        if found is None and all(_is_number(word) for word in column):
            values = [(scope, _number(word)) for scope, word in zip(scopes, column, strict=True)]
            found = explain_word(values)
        if found is None:
            return None
        parts.append(found)
    return Text(parts=_joined(parts))


def _word_of_one(scope: Scope, word: str) -> Expr:
    """A word of the only text there is: an address if it looks like a value and one has it, else itself."""
    if any(char.isdigit() for char in word) or "_" in word:
        for expr, value in addresses(scope):
            if isinstance(value, str | int) and not isinstance(value, bool) and shown(value) == word:
                return expr
    return Const(value=word)


def _joined(parts: Sequence[Expr]) -> tuple[Expr, ...]:
    """Neighbouring constants made one."""
    made: list[Expr] = []
    for part in parts:
        if made and isinstance(part, Const) and isinstance(made[-1], Const):
            made[-1] = Const(value=made[-1].value + part.value)
        else:
            made.append(part)
    return tuple(made)


def explain_written(cases: Sequence[tuple[Scope, Json]]) -> Expr | None:
    """The value of arithmetic that is written in a text of the scope."""
    for expr, value in addresses(cases[0][0]):
        if not isinstance(value, str) or not any(mark in value for mark in "+-*/"):
            continue
        for style in STYLES:
            made = Reckoned(of=expr, style=style)
            if all(_gives(made, scope, wanted) for scope, wanted in cases):
                return made
    return None


def _gives(expr: Reckoned, scope: Scope, wanted: Json) -> bool:
    try:
        text = evaluate(expr.of, scope)
    except Missing:
        return False
    return bool(evaluate_arithmetic(text, expr.style) == wanted)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", word) is not None


def _number(word: str) -> float:
    return float(word) if "." in word else int(word)
