"""The probes of task folders, one small file each, and the table of those that every task must have seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flightschool.audit.terminal import reach
from flightschool.audit.terminal.probes import (
    contents,
    descriptors,
    evaluated,
    forging,
    hooks,
    idle,
    injection,
    listing,
    markers,
    modules,
    numbers,
    plugins,
    programs,
    shadows,
    shipped,
    startup,
    tools,
    trojans,
    ungradable,
    visible,
)
from flightschool.audit.terminal.reach import Need
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["ATTACKS", "AttackProbe"]


@dataclass(frozen=True, kw_only=True)
class AttackProbe:
    """Attacks of one kind."""

    name: str
    attacks: Callable[[Trial], Iterable[Attack]]
    of_content: bool = False
    """Whether it only fills outputs: once anything passes, more of these say nothing new."""
    needs: Need | None = None
    """What the grader must do for the attack to matter at all."""
    as_root: bool = False
    """Whether it is also tried as root where the policy is someone else."""


ATTACKS: tuple[AttackProbe, ...] = (
    AttackProbe(name="idle", attacks=idle.attacks, of_content=True),
    AttackProbe(name="contents", attacks=contents.attacks, of_content=True),
    AttackProbe(name="ungradable", attacks=ungradable.attacks, of_content=True),
    AttackProbe(name="numbers", attacks=numbers.attacks, of_content=True, needs=reach.compares_numbers),
    AttackProbe(name="listing", attacks=listing.attacks, of_content=True, needs=reach.looks_inside),
    AttackProbe(name="injection", attacks=injection.attacks, of_content=True),
    AttackProbe(name="evaluated", attacks=evaluated.attacks, of_content=True, needs=reach.evaluates),
    AttackProbe(name="visible", attacks=visible.attacks),
    AttackProbe(name="programs", attacks=programs.attacks),
    AttackProbe(name="modules", attacks=modules.attacks),
    AttackProbe(name="descriptors", attacks=descriptors.attacks),
    AttackProbe(name="forging", attacks=forging.attacks, as_root=True),
    AttackProbe(name="shipped", attacks=shipped.attacks, as_root=True),
    AttackProbe(name="markers", attacks=markers.attacks),
    AttackProbe(name="tools", attacks=tools.attacks, needs=reach.calls_tools),
    AttackProbe(name="hooks", attacks=hooks.attacks, needs=reach.starts_pytest),
    AttackProbe(name="plugins", attacks=plugins.attacks, needs=reach.starts_pytest),
    AttackProbe(name="startup", attacks=startup.attacks, needs=reach.starts_python, as_root=True),
    AttackProbe(name="profiles", attacks=startup.profiles, needs=reach.reads_profiles, as_root=True),
    AttackProbe(name="shadows", attacks=shadows.attacks, needs=reach.starts_python),
    AttackProbe(name="trojans", attacks=trojans.attacks, as_root=True),
)
"""Attacks in the order in which they are played: what most often succeeds comes first."""
