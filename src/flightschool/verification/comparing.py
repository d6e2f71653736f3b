"""Found values against expected ones: tolerance, order, unit, and places that do not count.

One comparison serves states, files and answers, so that a tolerance means the same everywhere. Found values are data of
the policy's making: whatever they are, the comparison ends, in bounded time, with a list of differences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flightschool.digest import canonical_json
from flightschool.records import FLOAT_NOISE, Comparison, Json
from flightschool.verification.closeness import by_value, is_close
from flightschool.verification.quantities import in_unit, is_unit

__all__ = ["MOST_FUZZY_ITEMS", "Difference", "comparison_problem", "differences"]

MOST_FUZZY_ITEMS = 500
"""Items of a list that are matched in any order *with* a tolerance: every pair may have to be held side by side."""

_Path = tuple[str, ...]
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One place where found and expected part."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.what}"


def comparison_problem(how: Comparison, expected: Json) -> str:
    """Why such a comparison could not be made of this expected value; empty if it can."""
    return _own_problem(how) or _expected_problem(how, expected)


def _own_problem(how: Comparison) -> str:
    if not 0.0 <= how.tolerance < math.inf or not 0.0 <= how.relative < 1.0:
        return "tolerance must be finite and not negative, relative below 1"
    if (how.order == "by_key") != bool(how.key):
        return "order by_key and key go together"
    if how.unit and not is_unit(how.unit):
        return f"unit {how.unit!r} is not known"
    if any(not all(pattern.split(".")) for pattern in how.ignore):
        return "an ignored place has an empty part"
    if "*" in how.ignore:
        return "everything would be ignored"
    return ""


def _expected_problem(how: Comparison, expected: Json) -> str:
    if isinstance(expected, float) and not math.isfinite(expected):
        return f"{expected} equals nothing"
    inner: Iterable[Json] = ()
    problem = ""
    if isinstance(expected, Mapping):
        inner = expected.values()
    elif isinstance(expected, list | tuple):
        inner, problem = expected, _list_problem(how, expected)
    return problem or next(filter(None, (_expected_problem(how, value) for value in inner)), "")


def _list_problem(how: Comparison, expected: Sequence[Json]) -> str:
    if how.order == "by_key":
        if any(not isinstance(item, Mapping) or how.key not in item for item in expected):
            return f"an expected item has no {how.key!r}"
        if len({_bytes(item[how.key]) for item in expected}) < len(expected):
            return f"two expected items have the same {how.key!r}"
    if how.order in ("set", "multiset") and _is_fuzzy(how) and len(expected) > MOST_FUZZY_ITEMS:
        return f"more than {MOST_FUZZY_ITEMS} items in any order with a tolerance"
    return ""


def differences(
    found: Json, expected: Json, how: Comparison, *, texts_are_numbers: bool = False, most: int = 20
) -> list[Difference]:
    """Where ``found`` is not what is expected; empty if it is.

    Args:
        found: any JSON value.
        expected: a JSON value that has no ``comparison_problem``.
        how: tolerance, order, unit, ignored places.
        texts_are_numbers: whether a found text may stand for an expected number (cells of a CSV file).
        most: differences after which the search ends.
    """
    search = _Search(how, texts_are_numbers)
    result: list[Difference] = []
    try:
        for difference in search.walk(found, expected, ()):
            result.append(difference)
            if len(result) >= most:
                break
    except RecursionError:
        result.append(Difference("", "nested too deeply to be compared"))
    return result


@dataclass(frozen=True)
class _Search:
    how: Comparison
    texts_are_numbers: bool

    def walk(self, found: Json, expected: Json, path: _Path) -> Iterator[Difference]:
        if self._ignored(path):
            return
        if isinstance(expected, Mapping) and isinstance(found, Mapping):
            yield from self._objects(found, expected, path)
        elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
            yield from self._lists(found, expected, path)
        elif not self._equal(found, expected):
            yield Difference(".".join(path), f"found {_short(found)}, expected {_short(expected)}")

    def _objects(self, found: Mapping[str, Json], expected: Mapping[str, Json], path: _Path) -> Iterator[Difference]:
        for key in expected:
            inner = (*path, key)
            if key in found:
                yield from self.walk(found[key], expected[key], inner)
            elif not self._ignored(inner):
                yield Difference(".".join(inner), f"missing, expected {_short(expected[key])}")
        if not self.how.subset:
            for key in found:
                inner = (*path, str(key))
                if key not in expected and not self._ignored(inner):
                    yield Difference(".".join(inner), f"found {_short(found[key])}, expected nothing")

    def _lists(self, found: Sequence[Json], expected: Sequence[Json], path: _Path) -> Iterator[Difference]:
        if self.how.order == "by_key":
            yield from self._by_key(found, expected, path)
        elif self.how.order == "ordered":
            for index in range(max(len(found), len(expected))):
                inner = (*path, str(index))
                if self._ignored(inner):
                    continue
                if index >= len(found):
                    yield Difference(".".join(inner), f"missing, expected {_short(expected[index])}")
                elif index >= len(expected):
                    yield Difference(".".join(inner), f"found {_short(found[index])}, expected nothing")
                else:
                    yield from self.walk(found[index], expected[index], inner)
        else:
            yield from self._unordered(found, expected, path)

    def _by_key(self, found: Sequence[Json], expected: Sequence[Json], path: _Path) -> Iterator[Difference]:
        key = self.how.key
        wanted = {_bytes(item[key]): item for item in expected}
        seen: set[bytes] = set()
        for index, item in enumerate(found):
            identity = _bytes(item[key]) if isinstance(item, Mapping) and key in item else None
            inner = (*path, str(index) if identity is None else str(item[key]))
            if identity is None or identity not in wanted or identity in seen:
                if not self._ignored(inner):
                    yield Difference(".".join(inner), f"found {_short(item)}, expected nothing")
                continue
            seen.add(identity)
            yield from self.walk(item, wanted[identity], inner)
        for identity, item in wanted.items():
            inner = (*path, str(item[key]))
            if identity not in seen and not self._ignored(inner):
                yield Difference(".".join(inner), f"missing, expected {_short(item)}")

    def _unordered(self, found: Sequence[Json], expected: Sequence[Json], path: _Path) -> Iterator[Difference]:
        """Items matched one to one (``multiset``), or each with at least one of the other side (``set``)."""
        inner = (*path, "*")
        once = self.how.order == "set"
        if not _is_fuzzy(self.how) and not self._ignores_below(inner) and not self.texts_are_numbers:
            left, right = _counted(found, once), _counted(expected, once)
            for many, few, word in ((left, right, "not expected"), (right, left, "missing")):
                for identity, (item, count) in many.items():
                    extra = count - few.get(identity, (None, 0))[1]
                    if extra > 0:
                        yield Difference(".".join(path), f"{word}: {extra} × {_short(item)}")
            return
        if not once and len(found) != len(expected):
            yield Difference(".".join(path), f"found {len(found)} items, expected {len(expected)}")
            return
        if len(found) > MOST_FUZZY_ITEMS:
            yield Difference(".".join(path), f"{len(found)} items are too many to be matched with a tolerance")
            return
        fits = [[not any(self.walk(a, b, inner)) for b in expected] for a in found]
        if once:
            odd = [i for i, row in enumerate(fits) if not any(row)]
            lacking = [j for j in range(len(expected)) if not any(row[j] for row in fits)]
        else:
            partner = _matching(fits, len(expected))
            odd = [i for i in range(len(found)) if i not in partner.values()]
            lacking = [j for j in range(len(expected)) if j not in partner]
        yield from (Difference(".".join(path), f"not expected: {_short(found[i])}") for i in odd)
        yield from (Difference(".".join(path), f"missing: {_short(expected[j])}") for j in lacking)

    def _equal(self, found: Json, expected: Json) -> bool:
        if _is_number(expected):
            value = self._number(found)
            how = self.how
            return value is not None and is_close(value, expected, tolerance=how.tolerance, relative=how.relative)
        if isinstance(expected, bool) or isinstance(found, bool):
            return found is expected
        return bool(found == expected)

    def _number(self, found: Json) -> float | int | None:
        if _is_number(found):
            return found  # type: ignore[no-any-return]
        if isinstance(found, str) and self.how.unit:
            return in_unit(found, self.how.unit)
        if isinstance(found, str) and self.texts_are_numbers:
            return _plain_number(found)
        return None

    def _ignored(self, path: _Path) -> bool:
        return any(_matches(pattern, path) for pattern in self.how.ignore)

    def _ignores_below(self, path: _Path) -> bool:
        return any(len(pattern.split(".")) > len(path) for pattern in self.how.ignore)


def _matches(pattern: str, path: _Path) -> bool:
    parts = pattern.split(".")
    # an item matched in any order stands at "*", which a pattern's number must not match by accident
    return len(parts) == len(path) and all(p in ("*", q) for p, q in zip(parts, path, strict=True))


def _matching(fits: Sequence[Sequence[bool]], num_expected: int) -> dict[int, int]:
    """A largest one-to-one matching (Kuhn's augmenting paths): expected index → found index.

    Tolerances are not transitive, so taking the first that fits could leave one without a partner that had one.
    """
    partner: dict[int, int] = {}
    for start in range(len(fits)):
        came_from: dict[int, int] = {}  # expected → found that reached it
        queue = [start]
        end = None
        while queue and end is None:
            item = queue.pop()
            for j in range(num_expected):
                if fits[item][j] and j not in came_from:
                    came_from[j] = item
                    if j not in partner:
                        end = j
                        break
                    queue.append(partner[j])
        while end is not None:  # flip the path
            item = came_from[end]
            before = next((j for j, i in partner.items() if i == item), None)
            partner[end] = item
            if item == start:
                break
            end = before
    return partner


def _counted(items: Sequence[Json], once: bool) -> dict[bytes, tuple[Json, int]]:
    counts: dict[bytes, tuple[Json, int]] = {}
    for item in items:
        identity = _bytes(item)
        count = counts.get(identity, (item, 0))[1]
        counts[identity] = (item, 1 if once else count + 1)
    return counts


def _is_fuzzy(how: Comparison) -> bool:
    return how.tolerance > 0.0 or how.relative > FLOAT_NOISE or bool(how.unit) or how.subset


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain_number(text: str) -> float | int | None:
    text = text.strip()
    if len(text) > 400 or re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text, flags=re.ASCII) is None:
        return None
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def _bytes(value: Json) -> bytes:
    """Equal values have equal bytes: 1 and 1.0 too, fractions to nine significant digits."""
    return canonical_json(_rounded(value)) if _storable(value) else repr(value).encode("utf-8", "replace")


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        return by_value(value) if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value


def _storable(value: Json) -> bool:
    """Whether the value has canonical bytes: a lone surrogate has none."""
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, Mapping):
        return all(_storable(key) and _storable(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_storable, value))
    return isinstance(value, int | float | bool | None)


def _short(value: Json) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 120 else text[:117] + "…"
