"""Chance and junk: random calls, and arguments of the right type without meaning, must fall short."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.junk import junk_calls
from flightschool.audit.probes.base import passes, passes_unless_equivalent
from flightschool.digest import derive_seed
from flightschool.records import Finding, Message
from flightschool.rollouts import RandomPolicy

RANDOM = "random"
JUNK = "junk"
NUM_RANDOM_SEEDS = 2


def probe_random(exam: Examination) -> Iterable[Finding]:
    """A few seeds of the random policy."""
    for number in range(NUM_RANDOM_SEEDS):
        play = exam.play_policy(RandomPolicy(), seed=derive_seed("audit-random", exam.seed, number))
        yield from passes_unless_equivalent(exam, RANDOM, f"a random policy (seed {number})", play)


def probe_junk(exam: Examination) -> Iterable[Finding]:
    """Every tool that changes something, once, with junk, in one turn."""
    turns = (Message(role="assistant", tool_calls=junk_calls(exam.specs)), Message(role="assistant", content="Done."))
    yield from passes(JUNK, "junk of the right type in every write", exam.play_turns(turns, JUNK))
