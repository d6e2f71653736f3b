"""Batches whose step was not finite, kept for inspection: ``kept/`` in a run's folder. Imports no torch.

One file a skipped step, ``incarnation-I-step-SSSSSS-NANOSECONDS.msgpack``: a msgpack array of ``TrainGroup`` as the
trainer got them. The step is the trainer's version when it was skipped.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flightschool.errors import StoreError
from flightschool.records import Record, SpanKind
from flightschool.training.messages import TrainGroup, TrainMember

__all__ = ["KeptBatch", "KeptMember", "keep_batch", "kept_members", "read_kept"]

_NAME = re.compile(r"incarnation-(\d+)-step-(\d+)-\d+\.msgpack")


class KeptBatch(Record, frozen=True, kw_only=True):
    """What one skipped step would have trained on."""

    name: str
    """Of the file."""
    incarnation: int
    step: int
    """The trainer's version, which the skipped step did not change."""
    groups: tuple[TrainGroup, ...]


class KeptMember(Record, frozen=True, kw_only=True):
    """What to look at first in one attempt of a kept batch."""

    attempt: str
    group: str
    advantage: float
    num_tokens: int
    """Of its completions."""
    least_logprob: float | None
    """Least likely sampled token, nats; None without a completion."""
    oldest_step: int | None
    """Weights step of its oldest token."""
    not_finite: tuple[str, ...]
    """Of ``advantage``, ``turn_advantages``, ``token_advantages``, ``logprobs``, ``log_kept_mass``, those that hold a
    value that is not finite. Empty throughout a batch: what is not finite arose in the model, from weights or a
    learning rate."""


def keep_batch(folder: Path, groups: Sequence[TrainGroup], *, incarnation: int, step: int) -> Path:
    """Write a batch; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"incarnation-{incarnation}-step-{step:06d}-{time.time_ns()}.msgpack"
    path.write_bytes(msgspec.msgpack.encode(groups))
    return path


def read_kept(folder: Path) -> tuple[KeptBatch, ...]:
    """All kept batches, oldest first; none where every step was finite.

    Args:
        folder: ``RunFolder.kept``.

    Raises:
        StoreError: a file is no batch, or was cut short.
    """
    found = []
    for path in sorted(folder.glob("*.msgpack")):
        match = _NAME.fullmatch(path.name)
        try:
            groups = msgspec.msgpack.decode(path.read_bytes(), type=tuple[TrainGroup, ...])
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"a kept batch cannot be read: {error}",
                where=str(path),
                expected="a msgpack array of groups, whole",
                mend="move the file away: it was cut short by a crash, or is none of the trainer's",
            ) from error
        incarnation, step = (int(match[1]), int(match[2])) if match else (0, 0)
        found.append(KeptBatch(name=path.name, incarnation=incarnation, step=step, groups=groups))
    return tuple(sorted(found, key=lambda batch: batch.name.rpartition("-")[2]))


def kept_members(batch: KeptBatch) -> tuple[KeptMember, ...]:
    """Every attempt of a batch, those with something that is not finite first."""
    rows = [_member(group, member) for group in batch.groups for member in group.members]
    return tuple(sorted(rows, key=lambda row: not row.not_finite))


def _member(group: TrainGroup, member: TrainMember) -> KeptMember:
    completions = [span for span in member.spans if span.kind is SpanKind.COMPLETION]
    logprobs = [value for span in completions for value in span.logprobs_T]
    values = {
        "advantage": [member.advantage],
        "turn_advantages": list(member.turn_advantages.values()),
        "token_advantages": [value for own in member.token_advantages.values() for value in own],
        "logprobs": logprobs,
        "log_kept_mass": [value for span in completions for value in span.log_kept_mass_T],
    }
    steps = [run.step for span in completions for run in span.versions]
    return KeptMember(
        attempt=member.attempt,
        group=group.id,
        advantage=member.advantage,
        num_tokens=sum(len(span.token_ids_T) for span in completions),
        least_logprob=min(logprobs, default=None),
        oldest_step=min(steps, default=None),
        not_finite=tuple(name for name, found in values.items() if not all(map(math.isfinite, found))),
    )
