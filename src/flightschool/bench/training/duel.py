"""Both sides on one workload: tokens trained a second, and wall time to success.

They take turns, so that other people's work and a warm machine meet both. The first step of each flight is a warm-up.
Tokens are counted as in both numerators alike: sampled (loss mask 1) and trained; what is dropped counts in neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flightschool.bench.training.peer import fly_ours, fly_peer
from flightschool.bench.training.workload import Side, Workload
from flightschool.errors import InfrastructureError
from flightschool.records import Record

__all__ = ["Duel", "Race", "duel", "race"]

Tell = Callable[[str], None]


class Duel(Record, frozen=True, kw_only=True):
    """Tokens trained a second, repeat by repeat."""

    kind: str
    num_rows: int
    prompt_tokens: int
    ours: tuple[Side, ...]
    ours_async: tuple[Side, ...] = ()
    """The same with trainer and generation in a process of one thread each."""
    peer: tuple[Side, ...] = ()
    """Empty: not measured."""
    others: float
    """Mean cores that other processes used, at worst."""

    @property
    def tokens_per_s(self) -> float:
        """Ours, median of the repeats."""
        return statistics.median(side.tokens_per_s for side in self.ours)

    @property
    def ratio(self) -> float | None:
        """Ours / the peer's, median of the repeats."""
        return self._ratio(self.ours)

    @property
    def ratio_async(self) -> float | None:
        """The same for our asynchronous flights."""
        return self._ratio(self.ours_async)

    @property
    def step_ratio(self) -> float | None:
        """The peer's wall time of an optimizer step / ours."""
        if not self.peer:
            return None
        return statistics.median(b.step_s / a.step_s for a, b in zip(self.ours, self.peer, strict=True))

    def _ratio(self, ours: Sequence[Side]) -> float | None:
        if not self.peer or not ours:
            return None
        return statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in zip(ours, self.peer, strict=True))


class Race(Record, frozen=True, kw_only=True):
    """Wall time to success on fresh tasks."""

    goal: float
    ours: Side
    """Synchronous, one process of two threads, as the peer."""
    ours_async: Side
    """Trainer and generation overlap, one thread each."""
    peer: Side | None = None
    ratio: float | None = None
    """The peer's wall time / ours."""
    ratio_async: float | None = None
    """The peer's / ours where it is asynchronous; None too where that flight did not reach the goal."""
    is_lower_bound: bool = False
    """Whether the peer had not reached the goal when its time was over."""
    others: float


def duel(
    work: Workload,
    scratch: Path,
    python: Path | None,
    *,
    peer_steps: int,
    repeats: int,
    with_async: bool,
    tell: Tell,
) -> Duel:
    """Fly.

    Args:
        work: for both; its mode is ours.
        scratch: folder for runs.
        python: the peer's; None: ours alone.
        peer_steps: steps of the peer, warm-up included: the first of ours.
        repeats: of all flights.
        with_async: whether ours flies asynchronously as well.
        tell: is called with a line before each flight.
    """
    found: dict[str, list[Side]] = {"ours": [], "async": [], "peer": []}
    others = [0.0]
    what = f"{work.kind}: {work.num_steps} steps of {work.groups_per_step} x {work.group_size}"
    overlapping = msgspec.structs.replace(work, mode="async")
    prompts = work.prompts[: peer_steps * work.groups_per_step]
    peers = msgspec.structs.replace(work, num_steps=peer_steps, prompts=prompts)
    for repeat in range(repeats):
        flights: dict[str, Callable[[], tuple[Side, float]]] = {"ours": lambda: fly_ours(work, scratch)}
        if with_async:
            flights["async"] = lambda: fly_ours(overlapping, scratch)
        if python is not None:
            flights["peer"] = lambda: fly_peer(peers, scratch, python)
        for name, flight in flights.items():
            tell(f"{what}, {name}, {repeat + 1} of {repeats}")
            side, busy = flight()
            if len(side.steps) < 2:
                raise InfrastructureError(
                    "nothing is left once the warm-up is taken away",
                    where=what,
                    expected="at least two optimizer steps",
                    mend="raise the limit of time",
                )
            found[name].append(side)
            others.append(busy)
    return Duel(
        kind=work.kind,
        num_rows=work.group_size * work.groups_per_step,
        prompt_tokens=len(work.prompts[0].token_ids_T),
        ours=tuple(found["ours"]),
        ours_async=tuple(found["async"]),
        peer=tuple(found["peer"]),
        others=max(others),
    )


def race(work: Workload, scratch: Path, python: Path | None, *, most_ratio: float, most_s: float, tell: Tell) -> Race:
    """Train until a step's rollouts, of tasks never trained on, succeed in the share ``work.goal``.

    Args:
        work: for both.
        scratch: folder for runs.
        python: the peer's; None: ours alone.
        most_ratio: the peer may take this many times our wall time.
        most_s: and no more than so many seconds.
        tell: is called with a line before each flight.

    Raises:
        InfrastructureError: ours did not reach the goal, or had reached it before any training.
    """
    goal = work.goal or 1.0
    tell(f"to success {goal} on {work.kind}: ours, asynchronous")
    ours_async, others_async = fly_ours(msgspec.structs.replace(work, mode="async"), scratch)
    tell(f"to success {goal} on {work.kind}: ours")
    ours, others = fly_ours(msgspec.structs.replace(work, mode="sync"), scratch)
    others = max(others, others_async)
    took_s = ours.reached_s(goal)
    if not took_s:
        raise InfrastructureError(
            "ours began at the goal" if took_s == 0.0 else "ours did not reach the goal",
            where=" ".join(f"{step.success:.2f}" for step in ours.steps),
            expected=f"success below {goal} at first and above it after {work.num_steps} steps",
            mend="measure with another model",
        )
    if python is None:
        return Race(goal=goal, ours=ours, ours_async=ours_async, others=others)
    limit_s = min(most_s, most_ratio * took_s)
    tell(f"to success {goal} on {work.kind}: the peer, for at most {limit_s:.0f} s (ours took {took_s:.0f} s)")
    peer, busy = fly_peer(msgspec.structs.replace(work, limit_s=limit_s), scratch, python)
    reached = peer.reached_s(goal)
    peer_s = peer.wall_s if reached is None else reached
    took_async_s = ours_async.reached_s(goal)
    return Race(
        goal=goal,
        ours=ours,
        ours_async=ours_async,
        peer=peer,
        ratio=peer_s / took_s,
        ratio_async=peer_s / took_async_s if took_async_s else None,
        is_lower_bound=reached is None,
        others=max(others, busy),
    )
