"""Overlap of two sets of tasks: the same task, the same family, or nearly the same instruction.

Three ways to be kin, from certain to likely:

* ``digest``: one content under whatever id, family and stratum it is filed; renaming hides nothing.
* ``family``: one family on both sides, reported once. Its tasks are near duplicates by design, so their wording is not
  compared as well.
* ``instruction``: two families whose wording is nearly one. Ids and numbers are masked before comparing, since a
  template filled with other values is the same template.

Wording is compared by rapidfuzz's ``token_set_ratio``, which forgives order and repetition but gives 100 to a text that
merely *contains* the other: "close the order" in "close the order if the permit is valid, else decline". Those are
different tasks, hence the rule that both have about as many distinct words. Very short instructions must agree wholly.
And one instruction under two house rules ("buy the part", with and without "purchases need an approval") is two tasks:
wording counts as one only if the guidance is alike as well (``rules``; near copies go by it too, else training
would be refused on what a freeze left over). Guidance alone proves nothing, since many environments show the same long
policy with every task.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.lineage.rules import ruled_apart
from flightschool.records import Record, Task

__all__ = ["Overlap", "OverlapKind", "overlap"]

NEAR_DUPLICATE_SCORE = 92.0
LEAST_LENGTH_RATIO = 0.85
"""Distinct words of the shorter over those of the longer text, below which two texts are not one."""
FEWEST_WORDS = 5
"""Texts with fewer distinct words are near duplicates only if they are equal."""

_WORD = re.compile(r"[^\W_]+(?:[-_./:][^\W_]+)*")
_MASK = "#"


class OverlapKind(StrEnum):
    """How two tasks are kin."""

    DIGEST = "digest"
    FAMILY = "family"
    INSTRUCTION = "instruction"


class Overlap(Record, frozen=True, kw_only=True):
    """One finding: a task of each side and what they share."""

    kind: OverlapKind
    left: str
    """Id of a task of the first set."""
    right: str
    """Id of a task of the second set."""
    score: float = 100.0
    """Similarity of wording, 0..100; 100 for the certain kinds."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.left} and {self.right}: {self.detail}"


def overlap(a: Sequence[Task], b: Sequence[Task]) -> tuple[Overlap, ...]:
    """What ``a`` and ``b`` share; empty when they are no kin.

    Findings come by kind (digest, family, instruction), each in the order of ``a``. A family is reported once, with its
    first task of each side; wording once per pair of families.
    """
    return (*_same_content(a, b), *_same_family(a, b), *_same_wording(a, b))


def _same_content(a: Sequence[Task], b: Sequence[Task]) -> list[Overlap]:
    def content(task: Task) -> str:
        return content_digest(msgspec.structs.replace(task, id="", family="", stratum=""))

    known: dict[str, Task] = {}
    for task in b:
        known.setdefault(content(task), task)
    twins = ((task, known.get(content(task))) for task in a)
    return [
        Overlap(kind=OverlapKind.DIGEST, left=task.id, right=twin.id, detail="the same content")
        for task, twin in twins
        if twin is not None
    ]


def _same_family(a: Sequence[Task], b: Sequence[Task]) -> list[Overlap]:
    left, right = _by_family(a), _by_family(b)
    return [
        Overlap(
            kind=OverlapKind.FAMILY,
            left=tasks[0].id,
            right=right[family][0].id,
            detail=f"both of family {family!r} ({len(tasks)} and {len(right[family])} tasks)",
        )
        for family, tasks in left.items()
        if family in right
    ]


def _by_family(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    families: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        families[task.family].append(task)
    return families


def _same_wording(a: Sequence[Task], b: Sequence[Task]) -> list[Overlap]:
    from rapidfuzz import fuzz, process

    # Tasks of a family mask to few texts, so comparing each text of a family once keeps the matrix small.
    left, right = _distinct(a), _distinct(b)
    if not left or not right:
        return []
    scores = process.cdist(
        [text.instruction for text in left],
        [text.instruction for text in right],
        scorer=fuzz.token_set_ratio,
        score_cutoff=NEAR_DUPLICATE_SCORE,
    )
    best: dict[tuple[str, str], Overlap] = {}
    for row, column in zip(*scores.nonzero(), strict=True):
        mine, yours, score = left[row], right[column], round(float(scores[row, column]), 1)
        pair = (mine.task.family, yours.task.family)
        if pair[0] == pair[1] or (pair in best and best[pair].score >= score):
            continue
        if _about_as_long(mine.instruction, yours.instruction) and not ruled_apart(
            mine.task.guidance, yours.task.guidance
        ):
            best[pair] = Overlap(
                kind=OverlapKind.INSTRUCTION,
                left=mine.task.id,
                right=yours.task.id,
                score=score,
                detail=f"nearly one wording ({score:.0f} of 100) in families {pair[0]!r} and {pair[1]!r}",
            )
    return list(best.values())


@dataclass(frozen=True, slots=True)
class _Text:
    """What a task tells the agent, masked, with the first task of its family that tells it."""

    task: Task
    instruction: str
    guidance: str


def _distinct(tasks: Sequence[Task]) -> list[_Text]:
    seen: dict[tuple[str, str, str], _Text] = {}
    for task in tasks:
        text = _Text(task, _masked(task.instruction), _masked(task.guidance))
        if text.instruction:
            seen.setdefault((task.family, text.instruction, text.guidance), text)
    return list(seen.values())


def _masked(instruction: str) -> str:
    """Lower-case words in order, whatever holds a digit replaced by one mark."""
    words = (match.group() for match in _WORD.finditer(instruction.casefold()))
    return " ".join(_MASK if any(sign.isdigit() for sign in word) else word for word in words)


def _about_as_long(text: str, other: str) -> bool:
    few, many = sorted((len(set(text.split())), len(set(other.split()))))
    if few < FEWEST_WORDS:
        return text == other
    return few / many >= LEAST_LENGTH_RATIO
