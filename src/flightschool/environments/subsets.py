"""Arguments that never mattered: recordings that differ only in them always agree.

A summary for a colleague, a reason, a thought: another wording gets the same answer. An argument is left out of the
key only if recordings with different values of it were seen often enough and never answered differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flightschool.digest import canonical_json
from flightschool.environments.recordings import Recording, call_key
from flightschool.records import Json, Record

__all__ = ["Subset", "SubsetIndex", "find_subsets"]

_LEAST_VALUES = 3
"""Different values of an argument that must have met the same answer, over all groups."""


class Subset(Record, frozen=True, kw_only=True):
    """Arguments of a tool that are left out of its key."""

    tool: str
    ignored: tuple[str, ...]


def find_subsets(recordings: Sequence[Recording]) -> tuple[Subset, ...]:
    """For each tool the arguments that never mattered, one by one and then together."""
    by_tool: dict[str, list[Recording]] = {}
    for one in recordings:
        by_tool.setdefault(one.name, []).append(one)
    found = []
    for tool, own in by_tool.items():
        names = sorted({name for one in own for name in one.arguments})
        ignored = tuple(name for name in names if _irrelevant(own, (name,)))
        if ignored and (len(ignored) == 1 or _irrelevant(own, ignored)):
            found.append(Subset(tool=tool, ignored=ignored))
    return tuple(found)


def _irrelevant(recordings: Sequence[Recording], ignored: tuple[str, ...]) -> bool:
    groups: dict[bytes, tuple[set[bytes], set[bytes]]] = {}
    for one in recordings:
        values, answers = groups.setdefault(
            _key(one.scope, one.history, one.name, one.arguments, ignored), (set(), set())
        )
        values.add(canonical_json([one.arguments.get(name) for name in ignored]))
        answers.add(canonical_json([one.value, one.is_error]))
    if any(len(answers) > 1 for _, answers in groups.values()):
        return False
    return sum(len(values) for values, _ in groups.values() if len(values) > 1) >= _LEAST_VALUES


def _key(scope: str, history: str, name: str, arguments: Mapping[str, Json], ignored: Sequence[str]) -> bytes:
    kept = {key: value for key, value in arguments.items() if key not in ignored}
    return canonical_json([scope, history]) + call_key(name, kept)


class SubsetIndex:
    """Recordings by what is left of their keys."""

    def __init__(self, subsets: Iterable[Subset], recordings: Iterable[Recording]) -> None:
        self._ignored = {subset.tool: subset.ignored for subset in subsets}
        self._answers: dict[bytes, Recording] = {}
        for one in recordings:
            if one.name in self._ignored:
                ignored = self._ignored[one.name]
                self._answers.setdefault(_key(one.scope, one.history, one.name, one.arguments, ignored), one)

    def find(self, scope: str, history: str, name: str, arguments: Mapping[str, Json]) -> Recording | None:
        """The answer to a call that differs from a recorded one only in what never mattered."""
        if name not in self._ignored:
            return None
        return self._answers.get(_key(scope, history, name, arguments, self._ignored[name]))
