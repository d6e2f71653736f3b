"""Three rules of staleness on one simulated plant: two of the field and the one that runs here.

Every rule meets the same lengths. A rule's figure is its worst over bounds and laws; of each (bound, law) the mean over
seeds is taken first, except for the excess, which is the largest of all. ``ours`` is the rule object that a run's
sample queue asks, with its default settings; ``ours_draining`` the same with ``drain_before_step``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from flightschool.bench.targets import Target, all_met, at_least, at_most
from flightschool.records import Record
from flightschool.training.staleness import (
    LAWS,
    AdmissionRule,
    DiscardRule,
    HoldRule,
    Measured,
    Plant,
    StalenessRule,
    simulate,
)

__all__ = ["RuleFigures", "StalenessBench", "StalenessRow", "bench_staleness"]

BOUNDS = (1, 2, 4)
BUFFER_STEPS = 2
"""Finished groups that may wait, in nominal steps: the buffer of the systems compared with."""

MakeRule = Callable[[int, Plant], StalenessRule]


def _hold(max_staleness: int, plant: Plant, *, drains: bool = False) -> HoldRule:
    groups = plant.groups_per_step
    fills = -(-plant.num_slots // plant.group_size)
    return HoldRule(max_staleness, fills + BUFFER_STEPS * groups, reserve=-(-3 * groups // 4), drains=drains)


RULES: Mapping[str, MakeRule] = {
    "discard": lambda bound, plant: DiscardRule(bound, BUFFER_STEPS * plant.groups_per_step),
    "admission": lambda bound, plant: AdmissionRule(bound, plant.groups_per_step, BUFFER_STEPS * plant.groups_per_step),
    "ours": _hold,
    "ours_draining": lambda bound, plant: _hold(bound, plant, drains=True),
}


class StalenessRow(Record, frozen=True, kw_only=True):
    """One rule under one bound and law: means over seeds, the excess a maximum."""

    rule: str
    max_staleness: int
    law: str
    throughput_share_of_best: float
    measured: Measured


class RuleFigures(Record, frozen=True, kw_only=True):
    """A rule at its worst over bounds and laws."""

    throughput: float
    """Attempts trained in a mean episode length."""
    throughput_share_of_best: float
    """Of the rule with the largest throughput under the same bound and law."""
    length_bias: float
    waste: float
    expired_token_share: float
    max_staleness_excess: int
    batch_inflation: float
    inflation_over_bound: float
    decile_gap: float
    """Largest deviation from 1 of tokens trained within the bound / tokens sampled, by tenth of the episode."""


class StalenessBench(Record, frozen=True, kw_only=True):
    """Figures of every rule, the rows behind them, and the targets of ours."""

    discard: RuleFigures
    admission: RuleFigures
    ours: RuleFigures
    ours_draining: RuleFigures
    rows: tuple[StalenessRow, ...]
    num_groups: int
    num_seeds: int
    targets: tuple[Target, ...]
    met: bool


def bench_staleness(*, quick: bool = False, seed: int = 0, tell: Callable[[str], None] | None = None) -> StalenessBench:
    """Simulate.

    Args:
        quick: one seed and fewer groups.
        seed: the first of the seeds.
        tell: is called with a line now and then.
    """
    plant = Plant(num_groups=400 if quick else 1500)
    seeds = range(seed, seed + (1 if quick else 3))
    rows: list[StalenessRow] = []
    for law in LAWS:
        for bound in BOUNDS:
            found = {name: _mean_of_seeds(make(bound, plant), law, bound, plant, seeds) for name, make in RULES.items()}
            best = max(measured.throughput for measured in found.values())
            rows += [
                StalenessRow(
                    rule=name,
                    max_staleness=bound,
                    law=law,
                    throughput_share_of_best=measured.throughput / best,
                    measured=measured,
                )
                for name, measured in found.items()
            ]
            if tell is not None:
                tell(f"lengths {law}, bound {bound}: {len(seeds)} seeds of {plant.num_groups} groups")
    figures = {name: _worst([row for row in rows if row.rule == name]) for name in RULES}
    targets = _targets(figures["ours"])
    return StalenessBench(
        discard=figures["discard"],
        admission=figures["admission"],
        ours=figures["ours"],
        ours_draining=figures["ours_draining"],
        rows=tuple(rows),
        num_groups=plant.num_groups,
        num_seeds=len(seeds),
        targets=targets,
        met=all_met(targets),
    )


def _mean_of_seeds(rule: StalenessRule, law: str, bound: int, plant: Plant, seeds: Sequence[int]) -> Measured:
    runs = [simulate(rule, LAWS[law], max_staleness=bound, plant=plant, seed=seed) for seed in seeds]
    means = {name: fmean(getattr(run, name) for run in runs) for name in Measured.__struct_fields__}
    whole = {
        "max_staleness_excess": max(run.max_staleness_excess for run in runs),
        "num_steps": sum(run.num_steps for run in runs),
    }
    return Measured(**(means | whole))  # type: ignore[arg-type]


def _worst(rows: Sequence[StalenessRow]) -> RuleFigures:
    def most(name: str) -> float:
        return max(float(getattr(row.measured, name)) for row in rows)

    return RuleFigures(
        throughput=min(row.measured.throughput for row in rows),
        throughput_share_of_best=min(row.throughput_share_of_best for row in rows),
        length_bias=most("length_bias"),
        waste=most("waste"),
        expired_token_share=most("expired_token_share"),
        max_staleness_excess=int(most("max_staleness_excess")),
        batch_inflation=most("batch_inflation"),
        inflation_over_bound=most("inflation_over_bound"),
        decile_gap=most("decile_gap"),
    )


def _targets(ours: RuleFigures) -> tuple[Target, ...]:
    return (
        at_most("ours.max_staleness_excess", ours.max_staleness_excess, 0),
        at_most("ours.length_bias", ours.length_bias, 0.02),
        at_most("ours.waste", ours.waste, 0.02),
        at_most("ours.expired_token_share", ours.expired_token_share, 0.02),
        at_most("ours.decile_gap", ours.decile_gap, 0.02),
        at_least("ours.throughput_share_of_best", ours.throughput_share_of_best, 0.95),
        at_most("ours.inflation_over_bound", ours.inflation_over_bound, 1.3),
    )
