"""Casting: giving a family's cases their ids, people and values, from a seed.

The last case of a family is its worked example. It never shares an id or a drawn value with the others, so no
answer can be copied from it.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping, Sequence

from flightschool.digest import derive_random
from flightschool.environments.desk.families import Family, Scalar, load_sites
from flightschool.environments.desk.schema import Cell
from flightschool.records import Record

__all__ = ["Case", "cast"]

Row = tuple[str, dict[str, Cell]]


class Case(Record, frozen=True, kw_only=True):
    """One case of a family: the values of its slots and its rows of the world."""

    variant: str
    slots: dict[str, Scalar]
    rows: tuple[Row, ...]
    """Table and row."""


def cast(family: Family, seed: int, num_tasks: int) -> list[Case]:
    """``num_tasks`` cases and one more, the worked example. Seeds other than 0 also move the site and rename ids."""
    rng = derive_random("desk", seed, family.name)
    dealer = _Dealer(rng, _pools(family.site, seed), _draws_of_a_case(family))
    namer = _Namer(rng, relabel=seed != 0)
    offset = rng.randrange(len(family.variants))
    turns = [family.variants[index % len(family.variants)] for index in range(num_tasks)]
    cases = [_case(family, variant, namer, dealer) for variant in turns]
    dealer.turn_to_example()
    return [*cases, _case(family, family.variants[offset], namer, dealer)]


def _pools(site: str, seed: int) -> Mapping[str, Sequence[Scalar]]:
    sites = load_sites()
    names = list(sites)
    return sites[names[(names.index(site) + seed) % len(names)]]


def _draws_of_a_case(family: Family) -> dict[str, int]:
    """Pool → values that one case draws from it."""
    sources = list(family.slots.values()) + [value for row in family.rows for value in row.values()]
    draws: dict[str, int] = {}
    for source in sources:
        if isinstance(source, str) and source.startswith("~"):
            draws[source[1:]] = draws.get(source[1:], 0) + 1
    return draws


def _case(family: Family, variant: Mapping[str, Scalar], namer: _Namer, dealer: _Dealer) -> Case:
    dealer.open_case()
    slots: dict[str, Scalar] = {key: value for key, value in variant.items() if key != "name"}
    for slot, source in family.slots.items():
        slots[slot] = dealer.draw(source[1:], pile="slot") if source.startswith("~") else namer.name(slot, source)
    rows = tuple(_row(row, slots, dealer) for row in family.rows)
    return Case(variant=str(variant["name"]), slots=slots, rows=rows)


def _row(row: Mapping[str, Scalar], slots: Mapping[str, Scalar], dealer: _Dealer) -> Row:
    cells: dict[str, Cell] = {}
    for column, source in row.items():
        if column == "in":
            continue
        if isinstance(source, str) and source.startswith("$"):
            cells[column] = slots[source[1:]]
        elif isinstance(source, str) and source.startswith("~"):
            cells[column] = dealer.draw(source[1:])
        else:
            cells[column] = source
    return str(row["in"]), cells


class _Dealer:
    """Deals pool values: no repetition within a case, even use over the cases, a share set aside for the example."""

    def __init__(self, rng: random.Random, pools: Mapping[str, Sequence[Scalar]], draws: Mapping[str, int]) -> None:
        self._rng = rng
        self._pools: dict[str, list[Scalar]] = {}
        self._reserve: dict[str, list[Scalar]] = {}
        self._left: dict[tuple[str, str], list[Scalar]] = {}
        self._dealt: dict[str, set[Scalar]] = {}
        for pool, count in draws.items():
            values = rng.sample(list(pools[pool]), len(pools[pool]))
            self._reserve[pool], self._pools[pool] = values[:count], values[count:]

    def open_case(self) -> None:
        """A new case begins: values may be dealt again."""
        self._dealt = {}

    def turn_to_example(self) -> None:
        """From here on deal what was set aside."""
        self._pools, self._left = self._reserve, {}

    def draw(self, pool: str, pile: str = "row") -> Scalar:
        """A value that this case does not have yet. Slots have a pile of their own: what names a record is fresh."""
        dealt = self._dealt.setdefault(pool, set())
        left = self._left.setdefault((pile, pool), [])
        fitting = [value for value in left if value not in dealt]
        if not fitting:
            left += self._rng.sample(self._pools[pool], len(self._pools[pool]))
            fitting = [value for value in left if value not in dealt]
        left.remove(fitting[0])
        dealt.add(fitting[0])
        return fitting[0]


class _Namer:
    """Makes ids of a pattern, each once."""

    def __init__(self, rng: random.Random, *, relabel: bool) -> None:
        self._rng = rng
        self._relabel = relabel
        self._patterns: dict[str, str] = {}
        self._taken: set[str] = set()

    def name(self, slot: str, pattern: str) -> str:
        """A fresh id: ``#`` a digit (never a leading zero), ``@`` a capital letter."""
        if slot not in self._patterns:
            self._patterns[slot] = self._relabelled(pattern) if self._relabel else pattern
        while True:
            name = re.sub("[#@]+", self._fill, self._patterns[slot])
            if name not in self._taken:
                self._taken.add(name)
                return name

    def _fill(self, match: re.Match[str]) -> str:
        marks = match.group()
        drawn = [self._rng.choice("0123456789" if mark == "#" else string.ascii_uppercase) for mark in marks]
        if marks[0] == "#" and drawn[0] == "0":
            drawn[0] = self._rng.choice("123456789")
        return "".join(drawn)

    def _relabelled(self, pattern: str) -> str:
        """Other capital letters for those of the pattern, none that the desk's own new ids begin with."""
        letters = [letter for letter in string.ascii_uppercase if letter not in "BDMNVY"]
        while True:
            changed = re.sub("[A-Z]", lambda _: self._rng.choice(letters), pattern)
            if changed not in self._patterns.values():
                return changed
