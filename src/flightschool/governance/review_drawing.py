"""Drawing a review sheet: which attempts people look at, each with the probability with which it was chosen.

Attempts that independent voters disagree on and passes that a scan calls suspicious are taken *all*, as strata of
their own with inclusion probability 1: beside them, the random sample speaks for the rest of the pool and no one can
steer it. The rest is drawn at random without replacement in each cell (stratum and verdict), passes and failures about
alike in number, whatever their shares (W. Cochran, Sampling Techniques, 1977, chapter 5); a cell's inclusion
probability is drawn / size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["ReviewCandidate", "ReviewCell", "ReviewItem", "ReviewSheet", "draw_sheet"]

CERTAIN = "certain:"
"""Begins the names of strata that are taken whole, so that none can be mistaken for a stratum of tasks."""

Cell: TypeAlias = tuple[str, bool]
"""(stratum, passed)."""


class ReviewCandidate(Record, frozen=True, kw_only=True):
    """One judged attempt of the pool."""

    attempt: str
    task: str
    stratum: str
    passed: bool
    why: Literal["", "disagreement", "suspicious"] = ""
    """Why it must be looked at; empty: only if it is drawn."""


class ReviewItem(Record, frozen=True, kw_only=True):
    """One attempt on a sheet."""

    attempt: str
    task: str
    stratum: str
    passed: bool
    why: Literal["drawn", "disagreement", "suspicious"]
    inclusion: float
    """Probability with which it came onto the sheet, in (0, 1]."""


class ReviewCell(Record, frozen=True, kw_only=True):
    """Attempts of one stratum and verdict."""

    stratum: str
    passed: bool
    size: int
    """In the pool."""
    num_drawn: int


class ReviewSheet(Record, frozen=True, kw_only=True):
    """What was drawn for review, and from what."""

    name: str
    target: str
    """What was asked for: a run or an environment."""
    by: str
    """What the strata are: ``stratum``, ``family`` or ``none``."""
    num: int
    """Attempts to be drawn at random, beside those that are taken whole."""
    seed: int
    cells: tuple[ReviewCell, ...]
    items: tuple[ReviewItem, ...]
    """In the random order in which they are to be labelled."""
    num_unjudged: int
    """Attempts without a reward (lost to infrastructure): not in the pool."""
    made_by: str
    made_at: str
    """ISO 8601 UTC."""
    environments: tuple[str, ...] = ()
    """Digests of the environments that the pool's attempts were made in: the labels speak for their checks."""

    def item(self, attempt: str) -> ReviewItem:
        """The item of an attempt. Raises ``InputError`` when it was not drawn."""
        for item in self.items:
            if item.attempt == attempt:
                return item
        raise InputError(
            f"attempt {attempt!r} is not on the sheet",
            where=f"review sheet {self.name!r}",
            expected="an attempt that was drawn: only these have a known inclusion probability",
            mend=f"see them with: flightschool review list {self.name}",
        )


def _now() -> datetime:
    return datetime.now(UTC)


def draw_sheet(
    pool: Iterable[ReviewCandidate],
    *,
    name: str,
    target: str,
    num: int,
    seed: int,
    by: str = "stratum",
    num_unjudged: int = 0,
    environments: tuple[str, ...] = (),
    made_by: str,
    now: Callable[[], datetime] = _now,
) -> ReviewSheet:
    """A sheet; equal pools and seeds give equal items, whatever the order of the pool.

    Raises:
        InputError: an empty pool, an attempt twice, or ``num`` too small to draw from every cell: a cell that has no
            chance of being drawn would bias the rates.
    """
    cells: defaultdict[Cell, list[ReviewCandidate]] = defaultdict(list)
    seen: set[str] = set()
    for candidate in pool:
        if candidate.attempt in seen:
            raise InputError(
                f"attempt {candidate.attempt!r} is in the pool twice", where=target, expected="once", mend="drop one"
            )
        seen.add(candidate.attempt)
        cells[CERTAIN + candidate.why if candidate.why else candidate.stratum, candidate.passed].append(candidate)
    if not cells:
        raise InputError(
            "there is nothing to review",
            where=target,
            expected="attempts with a verdict",
            mend="roll out in this workspace first: flightschool rollout",
        )
    drawn = _allocate({cell: len(c) for cell, c in cells.items() if not _certain(cell)}, num, target)
    items: list[ReviewItem] = []
    counts: list[ReviewCell] = []
    for cell, candidates in sorted(cells.items()):
        size = len(candidates)
        take = size if _certain(cell) else drawn[cell]
        ordered = sorted(candidates, key=lambda candidate: candidate.attempt)
        chosen = derive_random("review", seed, *map(str, cell)).sample(ordered, take)
        counts.append(ReviewCell(stratum=cell[0], passed=cell[1], size=size, num_drawn=take))
        items += [_item(candidate, cell, take / size) for candidate in chosen]
    derive_random("review-order", seed).shuffle(items)
    return ReviewSheet(
        name=name,
        target=target,
        by=by,
        num=num,
        seed=seed,
        cells=tuple(counts),
        items=tuple(items),
        num_unjudged=num_unjudged,
        made_by=made_by,
        made_at=_told(now()),
        environments=environments,
    )


def _told(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _certain(cell: Cell) -> bool:
    return cell[0].startswith(CERTAIN)


def _item(candidate: ReviewCandidate, cell: Cell, inclusion: float) -> ReviewItem:
    return ReviewItem(
        attempt=candidate.attempt,
        task=candidate.task,
        stratum=cell[0],
        passed=candidate.passed,
        why=candidate.why or "drawn",
        inclusion=inclusion,
    )


def _allocate(sizes: Mapping[Cell, int], num: int, target: str) -> dict[Cell, int]:
    """How many to draw from each cell: half of ``num`` for each verdict, one a cell at least, the rest by size.

    By hand: 100 passes in one cell, failures 30 and 10 in two, ``num`` 20. Ten for the passes; of the ten for the
    failures one each, and the eight left by what is left of the cells, 29 : 9, that is 6.1 and 1.9, so 6 and 2.
    """
    sides = {side: {cell: size for cell, size in sizes.items() if cell[1] is side} for side in (True, False)}
    totals = {side: sum(cells.values()) for side, cells in sides.items()}
    num = min(num, sum(totals.values()))
    if num < len(sizes):
        raise InputError(
            f"{num} draws for {len(sizes)} cells of stratum and verdict",
            where=target,
            expected=f"-n {len(sizes)} or more, better ten a cell",
            mend="draw more, or use fewer strata: --by none",
        )
    fewest = {side: len(cells) for side, cells in sides.items()}
    passes = min(max(num // 2, num - totals[False], fewest[True]), totals[True], num - fewest[False])
    return {**_spread(sides[True], passes), **_spread(sides[False], num - passes)}


def _spread(sizes: Mapping[Cell, int], num: int) -> dict[Cell, int]:
    """One a cell, the rest in proportion to what is left of the cells, by largest remainder."""
    if not sizes:
        return {}
    rest, room = num - len(sizes), sum(sizes.values()) - len(sizes)
    exact = {cell: rest * (size - 1) / room if room else 0.0 for cell, size in sizes.items()}
    taken = {cell: 1 + math.floor(share) for cell, share in exact.items()}
    order = sorted(sizes, key=lambda cell: (math.floor(exact[cell]) - exact[cell], cell))
    for cell in order[: num - sum(taken.values())]:
        taken[cell] += 1
    return taken
