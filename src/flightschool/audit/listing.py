"""Answer keys in what the agent is shown: numbers of several tasks, each beside what it belongs to.

A small number alone tells nothing, since every text holds some. ``gear 17, pump 90`` tells two prices: there, several
tasks' numbers stand beside words that those tasks' solutions name. So a pair of word and number counts only where the
same text holds another one of other word and other number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from flightschool.audit.values import is_prose
from flightschool.audit.view import stands_in
from flightschool.records import Json, Task, ToolCall

__all__ = ["ListedAnswers", "Pair"]

Pair: TypeAlias = tuple[str, str]
"""(word, number) as they stand beside one another."""

_NUMBER: Final = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-])")
_ENDS: Final = re.compile(r"[;\n]|\.\s")
"""What separates a number from words of another statement."""
_NEAR: Final = 40
"""Characters between a word and its number."""
_SHORTEST_WORD: Final = 2


class ListedAnswers:
    """What the solutions of an environment pair: words of their calls with numbers that they write.

    Args:
        solutions: tasks with their calls.
        common: words that name no single thing, such as members of enumerations.
    """

    def __init__(self, solutions: Iterable[tuple[Task, Sequence[ToolCall]]], common: Collection[str]) -> None:
        self._pairs: dict[str, frozenset[Pair]] = {
            task.id: frozenset(_pairs(task.instruction, calls, common)) for task, calls in solutions
        }
        self._all = frozenset(pair for pairs in self._pairs.values() for pair in pairs)
        self._found: dict[str, frozenset[Pair]] = {}

    def told(self, task_id: str, text: str) -> list[Pair]:
        """Pairs of a task that stand in a text which lists those of several tasks."""
        if text not in self._found:
            self._found[text] = frozenset(_beside(text, self._all))
        found = self._found[text]
        own = found & self._pairs.get(task_id, frozenset())
        return sorted(pair for pair in own if any(_differ(pair, other) for other in found))


def _differ(pair: Pair, other: Pair) -> bool:
    return pair[0] != other[0] and pair[1] != other[1]


def _pairs(instruction: str, calls: Sequence[ToolCall], common: Collection[str]) -> Iterator[Pair]:
    values: list[Json] = [value for call in calls for value in call.arguments.values()]
    words = {v for v in values if isinstance(v, str) and len(v) >= _SHORTEST_WORD and not is_prose(v)} - set(common)
    numbers = {str(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
    for number in numbers:
        if not stands_in(number, instruction):
            yield from ((word.lower(), number) for word in words)


def _beside(text: str, pairs: Collection[Pair]) -> Iterator[Pair]:
    words: dict[str, list[str]] = {}
    for word, number in pairs:
        words.setdefault(number, []).append(word)
    for number, nearby in _neighbours(text.lower()):
        yield from ((word, number) for word in words.get(number, ()) if word in nearby and stands_in(word, nearby))


def _neighbours(text: str) -> Iterator[tuple[str, str]]:
    """Each number with the words before it, back to the number before, and with those right behind it."""
    numbers = list(_NUMBER.finditer(text))
    ends = [0, *(match.end() for match in numbers)]
    starts = [*(match.start() for match in numbers[1:]), len(text)]
    for match, before, after in zip(numbers, ends, starts, strict=False):
        yield match.group(), _ENDS.split(text[max(before, match.start() - _NEAR) : match.start()])[-1]
        yield match.group(), re.split(r"[,;.\n]", text[match.end() : min(after, match.end() + _NEAR)])[0]
