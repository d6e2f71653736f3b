"""The design of a suite: how likely each task was to be drawn, what it weighs, and digests of all it measures with.

Families are drawn without replacement inside strata, tasks inside families under the caps, so a task's inclusion
probability is (families drawn / families) · (tasks kept / tasks of its family). The headline weighs a task by
W_h / n_h, its stratum's share of traffic over the tasks measured there; Kish's effective size says what that costs.

The components are digested one by one, so that a refusal can name what differs: a task's prompt, its truth, its initial
state, its permissions; the tools, the house rules, the verifiers with the version of the code (and of the judge's
prompt) that runs them, the reward composition, fault profiles and traffic weights. Limits (turns, tools shown) are part
of the prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation.rules import RunRules
from flightschool.evaluation.targets import check_targets
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import Record, Suite, Task
from flightschool.statistics import effective_sample_size, minimal_detectable_effect, required_pairs
from flightschool.verification import CheckVerifier

__all__ = ["DIMENSIONS", "Realism", "SuiteDesign", "TaskDesign", "common_tasks", "design_suite", "require_design"]

MOST_NAMED = 8
PER_TASK = ("prompt", "truth", "verifier", "state", "permissions")
"""What is digested of each task."""
PLANNED_DISCORDANT = 0.3
"""Share of tasks on which two policies are taken to differ when nothing was measured yet."""


@runtime_checkable
class Dissected(Protocol):
    """An environment that digests the parts of its tasks itself, since no world of theirs can be opened to look."""

    def parts_of(self, task_id: str) -> Mapping[str, str]:
        """Part (see ``PER_TASK``) → digest."""
        ...


DIMENSIONS = ("tools", "latency", "users", "state_size", "permissions", "faults")
"""What a realism statement speaks about: a wind tunnel need not look like the sky, but must say relative to what it is
realistic."""


class Realism(StrEnum):
    """How a suite stands to deployment in one dimension."""

    MATCHED = "matched"
    SCALED = "scaled"  # smaller or larger, in a way that is understood
    IGNORED = "ignored"
    NOT_STATED = "not stated"


class TaskDesign(Record, frozen=True, kw_only=True):
    """How one task got into the suite and what it weighs there."""

    inclusion: float
    """Probability of being drawn, 0..1."""
    weight: float
    """Share of the headline, W_h / n_h; all weights sum to 1."""


class SuiteDesign(Record, frozen=True, kw_only=True):
    """Sampling design and components of a frozen suite."""

    suite: str
    suite_digest: str
    tasks: dict[str, TaskDesign]
    effective_tasks: float
    """Kish's effective number of tasks, (Σw)² / Σw²."""
    families: dict[str, int]
    """Stratum → families measured on."""
    silent: dict[str, float]
    """Strata with traffic of which the suite cannot speak, with their shares of all traffic."""
    thin: tuple[str, ...]
    """Strata of a single family or task: a value can be given for them, an interval hardly."""
    mde: float
    """Difference of success that a comparison shows with 80 % power, before anything is measured."""
    pairs_for_a_tenth: int
    """Tasks that it would take to show a difference of 0.1."""
    realism: dict[str, Realism]
    """Dimension → how the suite stands to deployment in it; those not named are ``not stated``."""
    rules: RunRules = RunRules()
    """Limits and retries of every run on this suite, registered before the first."""
    targets: dict[str, float] = msgspec.field(default_factory=dict)
    """What is wanted, by the names of ``evaluation.targets``."""
    version: int = 1
    """Counted along ``follows``."""
    follows: str = ""
    """Name of the suite that this one replaces; empty for a first version."""
    because: str = ""
    """Why it replaces the other, for the changelog."""
    anchors: tuple[str, ...] = ()
    """Tasks that stand unchanged in both, by which scores can be equated."""
    components: dict[str, str]
    """Component → digest."""

    @property
    def digest(self) -> str:
        """Digest of the whole design, which the freeze writes to the audit log."""
        return content_digest(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the suite cannot say, for people."""
        silent = [
            f"cannot speak for stratum {name!r} ({share:.1%} of traffic): no task of it could be measured"
            for name, share in self.silent.items()
        ]
        thin = [f"stratum {name!r} rests on a single family: its own interval says little" for name in self.thin]
        unstated = [name for name in DIMENSIONS if self.realism.get(name, Realism.NOT_STATED) is Realism.NOT_STATED]
        open_ = [f"realism not stated: {', '.join(unstated)}"] if unstated else []
        return (*silent, *thin, *open_)


def design_suite(
    suite: Suite,
    environment: Environment,
    *,
    composition: RewardComposition | None = None,
    faults: Mapping[str, str] | None = None,
    whole: Sequence[Task] | None = None,
    realism: Mapping[str, str] | None = None,
    rules: RunRules | None = None,
    targets: Mapping[str, float] | None = None,
    previous: SuiteDesign | None = None,
    because: str = "",
) -> SuiteDesign:
    """The design of a suite as it is frozen.

    Args:
        suite: what was drawn.
        environment: in which it will be run.
        composition: grades; part of what is frozen when given.
        faults: fault profile → digest, of those it will be measured under.
        whole: the tasks that it was drawn from; by default the environment's.
        realism: dimension → ``matched``, ``scaled`` or ``ignored``.
        rules: limits and retries of its runs.
        targets: what is wanted (see ``evaluation.targets``).
        previous: design of the suite that this one replaces.
        because: why it does.

    Raises:
        InputError: an unknown dimension or word of realism, or an unknown target.
    """
    stated = _stated(realism or {})
    drawn = [environment.task(task_id) for task_id in suite.task_digests]
    designs = _task_designs(suite, drawn, list(environment.tasks() if whole is None else whole))
    families = {share.name: len(share.families) for share in suite.strata}
    effective = effective_sample_size([one.weight for one in designs.values()])
    rules = rules or RunRules()
    components = _components(suite, environment, composition, faults or {}) | {"rules": content_digest(rules)}
    return SuiteDesign(
        suite=suite.name,
        suite_digest=suite.digest,
        tasks=designs,
        effective_tasks=effective,
        families=families,
        silent=_silent(environment, drawn),
        thin=tuple(name for name, number in families.items() if number < 2),
        mde=minimal_detectable_effect(max(1, int(effective)), PLANNED_DISCORDANT**0.5),
        pairs_for_a_tenth=required_pairs(0.1, PLANNED_DISCORDANT),
        realism=stated,
        rules=rules,
        targets=check_targets(targets or {}),
        version=1 if previous is None else previous.version + 1,
        follows="" if previous is None else previous.suite,
        because=because,
        anchors=() if previous is None else common_tasks(previous.components, components),
        components=components,
    )


def _task_designs(suite: Suite, drawn: Sequence[Task], tasks: Sequence[Task]) -> dict[str, TaskDesign]:
    """How each task got in, and its weight W_h / n_h."""
    per_stratum = Counter(task.stratum for task in drawn)
    shares = {share.name: share.weight for share in suite.strata}
    return {
        task.id: TaskDesign(
            inclusion=_inclusion(task, drawn, tasks), weight=shares[task.stratum] / per_stratum[task.stratum]
        )
        for task in drawn
    }


def _silent(environment: Environment, drawn: Sequence[Task]) -> dict[str, float]:
    """Strata with traffic of which nothing was drawn, with their shares of all traffic."""
    traffic, present = sum(environment.strata.values()), {task.stratum for task in drawn}
    return {name: share / traffic for name, share in environment.strata.items() if share > 0 and name not in present}


def common_tasks(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Tasks that stand in both versions with the same prompt, truth, verifier, state and permissions."""
    tasks = [name.removeprefix("prompt of ") for name in new if name.startswith("prompt of ")]
    return tuple(
        task for task in tasks if all(old.get(name) == new[name] for name in (f"{part} of {task}" for part in PER_TASK))
    )


def _stated(realism: Mapping[str, str]) -> dict[str, Realism]:
    words = [str(word) for word in Realism]
    for name, word in realism.items():
        if name not in DIMENSIONS or word not in words:
            raise InputError(
                f"realism of {name!r} is {word!r}",
                where="realism",
                expected=f"{', '.join(DIMENSIONS)}, each {', '.join(words)}",
                mend="correct the statement",
            )
    return {name: Realism(word) for name, word in realism.items()}


def require_design(
    design: SuiteDesign,
    suite: Suite,
    environment: Environment,
    *,
    composition: RewardComposition | None = None,
    faults: Mapping[str, str] | None = None,
) -> None:
    """Refuse to measure with anything but what was frozen.

    Components that the freeze did not know (a fault profile of one's own, say) are not compared: ``compare`` refuses to
    pair runs that differ in them.

    Raises:
        GateError: names the components that differ.
    """
    if design.suite_digest != suite.digest:
        differing = ["the suite itself"]
    else:
        now = _components(suite, environment, composition, faults or {}) | {"rules": content_digest(design.rules)}
        differing = [
            name
            for name, digest in design.components.items()
            if (name in now or not name.startswith(("composition", "faults/"))) and now.get(name) != digest
        ]
    if differing:
        more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
        raise GateError(
            f"changed since the freeze: {', '.join(differing[:MOST_NAMED])}{more}",
            where=f"suite {suite.name}, environment {environment.name}",
            expected="prompts, truths, states, verifiers and grading as frozen",
            mend="restore what changed, or freeze anew under another name: scores across it are not comparable",
        )


def _inclusion(task: Task, drawn: Sequence[Task], tasks: Sequence[Task]) -> float:
    families = {one.family for one in tasks if one.stratum == task.stratum}
    taken = {one.family for one in drawn if one.stratum == task.stratum}
    size = sum(one.family == task.family for one in tasks)
    kept = sum(one.family == task.family for one in drawn)
    return len(taken) / len(families) * kept / size


def _components(
    suite: Suite, environment: Environment, composition: RewardComposition | None, faults: Mapping[str, str]
) -> dict[str, str]:
    states: dict[str, str] = {}
    found = {
        "tools": content_digest(list(environment.tools())),
        "house rules": content_digest(environment.policy_text),
        "weights": content_digest({share.name: share.weight for share in suite.strata}),
    }
    for task_id in suite.task_digests:
        try:
            task = environment.task(task_id)
        except NotFoundError:
            found[f"prompt of {task_id}"] = ""
            continue
        found |= {f"{part} of {task_id}": digest for part, digest in _parts(environment, task, states).items()}
    if composition is not None:
        found["composition"] = composition.digest
    return found | {f"faults/{name}": digest for name, digest in faults.items()}


def _parts(environment: Environment, task: Task, states: dict[str, str]) -> Mapping[str, str]:
    """Digest of each part of one task. ``states`` remembers those of initial states, which many tasks share."""
    if isinstance(environment, Dissected):
        return environment.parts_of(task.id)
    reference = environment.reference(task.id)
    if task.initial_state not in states:
        states[task.initial_state] = _state(environment, task)
    return {
        "prompt": task.digest,
        "truth": content_digest(reference),
        "verifier": CheckVerifier(reference.checks).digest,
        "state": states[task.initial_state],
        "permissions": str(getattr(environment.permissions(task), "digest", "")),
    }


def _state(environment: Environment, task: Task) -> str:
    world = environment.open(task)
    try:
        return content_digest(world.snapshot())
    finally:
        world.close()
