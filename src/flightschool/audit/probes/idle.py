"""Doing nothing, and abstaining without grounds, pass nothing (invariant 12)."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.mutants import DECLINE
from flightschool.audit.probes.base import passes
from flightschool.records import Finding
from flightschool.rollouts import NoopPolicy

NOOP = "noop"
DECLINE_ONLY = "decline-only"
STOP = "stop"


def probe_noop(exam: Examination) -> Iterable[Finding]:
    """Say that it is done, and do nothing."""
    yield from passes(NOOP, "doing nothing", exam.play_policy(NoopPolicy()))


def probe_stop(exam: Examination) -> Iterable[Finding]:
    """Stop at once, and say the instruction back: neither an empty answer nor a copy of the input is work."""
    yield from passes(STOP, "stopping at once", exam.play((), STOP, answer=""))
    copied = exam.task.instruction or exam.task.guidance
    yield from passes(STOP, "copying the instruction into the answer", exam.play((), "copy-input", answer=copied))


def probe_decline(exam: Examination) -> Iterable[Finding]:
    """Decline at once, with the environment's most common reason and no read."""
    decline = exam.neighbourhood.decline()
    if decline is not None and any(spec.name == DECLINE for spec in exam.specs):  # else it is refused: the no-op
        yield from passes(DECLINE_ONLY, "declining without a read", exam.play((decline,), DECLINE_ONLY))
