"""What each consumed group was credited with, term by term, kept beside the run: ``credits.jsonl``. Imports no torch.

The reward's raw terms stand on every attempt, in the journal; here stand the advantages that training made of them, of
each attempt and of each span of sampled tokens. A line is written when the group is consumed. After a crash a group may
be consumed again, under the next incarnation: ``read_credits`` gives what was written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightschool.records import EpisodeGroup, GroupState, Record, SpanKind
from flightschool.training.algorithms.terms import GroupCredits
from flightschool.training.lines import LineFile, UnreadableLine, read_lines

__all__ = ["CreditsFile", "GroupRow", "MemberRow", "credit_row", "read_credits"]


class MemberRow(Record, frozen=True, kw_only=True):
    """One attempt's credit."""

    attempt: str
    advantage: float
    """Without the terms of single turns."""
    terms: dict[str, float]
    """Summands of it, by name."""
    turns: dict[int, float]
    """Turn → term that its tokens get beside it."""
    spans: dict[int, float]
    """Span of sampled tokens → the advantage of its tokens, all terms together but the teacher's."""
    teacher: dict[int, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """Span of sampled tokens → what a teacher's word adds to each token; empty without one."""


class GroupRow(Record, frozen=True, kw_only=True):
    """One consumed group."""

    incarnation: int
    version: int
    """Of the trainer when the group was consumed."""
    group: str
    task: str
    state: GroupState
    members: tuple[MemberRow, ...]
    """None where the group gave no gradient."""


class CreditsFile:
    """Appends one line a group."""

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)

    def write(self, row: GroupRow) -> None:
        """Append one group."""
        self._lines.append(msgspec.json.encode(row))


def credit_row(
    group: EpisodeGroup,
    credits_: GroupCredits,
    turns: Mapping[str, dict[int, float]],
    incarnation: int,
    version: int,
    tokens: Mapping[str, Mapping[int, tuple[float, ...]]] | None = None,
) -> GroupRow:
    """The line of a group; ``turns``: attempt → turn → term; ``tokens``: attempt → span → the teacher's terms."""
    members = {member.id: member for member in group.members}
    rows = []
    for credit in credits_.credits:
        own = turns.get(credit.attempt, {})
        spans = (span for span in members[credit.attempt].spans if span.kind is SpanKind.COMPLETION)
        rows.append(
            MemberRow(
                attempt=credit.attempt,
                advantage=credit.advantage,
                terms=credit.terms,
                turns=own,
                spans={span.id: credit.advantage + own.get(span.turn, 0.0) for span in spans},
                teacher=dict((tokens or {}).get(credit.attempt, {})),
            )
        )
    return GroupRow(
        incarnation=incarnation,
        version=version,
        group=group.id,
        task=group.task,
        state=credits_.state,
        members=tuple(rows),
    )


def read_credits(path: Path, unreadable: UnreadableLine | None = None) -> tuple[GroupRow, ...]:
    """All groups in order, each as it was consumed last. See ``read_lines`` for lines that are damaged."""
    rows: dict[str, GroupRow] = {}
    for row in read_lines(path, msgspec.json.Decoder(GroupRow).decode, unreadable):
        rows.pop(row.group, None)
        rows[row.group] = row
    return tuple(rows.values())
