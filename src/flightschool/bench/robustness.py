"""Whether a trained model learned the work, or the way the work was written down.

The families that the suite froze for the trained strata are flown as they are, with other ids and values, with other
words, and with a tool of another name. Two controls show that the suite measures the model at all: with random numbers
in place of its attention outputs it must fail, and a policy that always fills in one template of calls must fail.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flightschool.bench.targets import Target, all_met, at_least, at_most, more_than
from flightschool.digest import derive_seed
from flightschool.environments import load_environment
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.errors import GateError, InputError
from flightschool.protocols import Environment
from flightschool.records import Record, Reference, Suite, Task, ToolCall
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, Policy, run_attempts
from flightschool.rollouts.policies import scripted_turns
from flightschool.statistics import cluster_bootstrap_mean
from flightschool.store import Workspace
from flightschool.verification import OutcomeReward, RewardSettings

if TYPE_CHECKING:
    from flightschool.engines import LoadedModel

__all__ = [
    "FittedPolicy",
    "RobustnessBench",
    "Variant",
    "bench_robustness",
    "new_name",
    "randomise_attention_outputs",
    "trained_tasks",
]

MOST_LOSS = 0.1
"""How far success may fall under another seed, other words or another name."""
MOST_RANDOMISED = 0.15
MOST_FITTED = 0.5
CONCURRENCY = 32
SAMPLES = 3
"""Attempts at a task. One at each of 36 tasks scatters by a tenth between two runs, as much as a variant may lose."""
OTHER_VERBS = {"get": "fetch", "list": "show", "find": "search", "set": "change", "create": "open"}

PolicyOf = Callable[[Environment], Policy]


class Variant(Record, frozen=True, kw_only=True):
    """Success on one variant of the suite's families."""

    name: str
    success: float
    low: float
    high: float
    """95 % interval, by family."""
    num_attempts: int
    """With a grade."""
    num_missing: int
    """Attempts without a grade (infra failures), in neither count."""
    note: str = ""


class RobustnessBench(Record, frozen=True, kw_only=True):
    """All variants of one model."""

    model: str
    suite: str
    families: tuple[str, ...]
    success_frozen: float
    success_other_seed: float
    success_paraphrased: float
    success_renamed: float
    success_randomised: float
    success_fitted: float
    """Of the scripted policy that knows one template."""
    variants: tuple[Variant, ...]
    targets: tuple[Target, ...]
    met: bool


class FittedPolicy(MessagesPolicy):
    """Knows one template (tools and argument names) and fills it with the right values of each task.

    That is more than a policy fitted to the template could know, so its success bounds what any such policy reaches.
    The template is the one that solves most of the tasks.
    """

    def __init__(self, references: Sequence[Reference]) -> None:
        shapes = Counter(_template(reference) for reference in references)
        self.template = shapes.most_common(1)[0][0]
        turns = {ref.task_id: scripted_turns(self._filled(ref.oracle), ref.oracle_answer) for ref in references}
        super().__init__(turns, "fitted")

    def _filled(self, oracle: Sequence[ToolCall]) -> list[ToolCall]:
        filled = []
        for number, (name, arguments) in enumerate(self.template):
            known = list(oracle[min(number, len(oracle) - 1)].arguments.values())
            values = {key: known[min(index, len(known) - 1)] for index, key in enumerate(arguments) if known}
            filled.append(ToolCall(id=f"call_{number}_0", name=name, arguments=values))
        return filled


def _template(reference: Reference) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((call.name, tuple(call.arguments)) for call in reference.oracle)


def bench_robustness(
    folder: Path,
    space: Workspace,
    *,
    name: str,
    suite: str = "checkride",
    seed: int = 0,
    other_seed: int = 7,
    temperature: float = 1.0,
    max_new_tokens: int = 32,
    samples: int = SAMPLES,
    tell: Callable[[Variant], None] = lambda _: None,
) -> RobustnessBench:
    """Fly every variant with one model.

    Args:
        folder: the trained model.
        space: workspace in which the suite was frozen.
        name: what the model is called.
        suite: the frozen suite.
        seed: seed of sampling and latencies; equal for all variants.
        other_seed: seed of the generator for the variant with other ids and values.
        temperature: of sampling, as in the measurement before and after.
        max_new_tokens: longest completion.
        samples: attempts at each task in each variant.
        tell: told of each variant when it is measured.

    Raises:
        GateError: the suite is not one of the worked domain as it is now.
        InputError: the other seed is the frozen one.
    """
    frozen = _suite(space, suite)
    desk, task_ids = build_environment(), trained_tasks(frozen)
    _require_desk(frozen, desk, task_ids)
    if other_seed == desk.seed:
        raise InputError("the other seed is the frozen one", where="--other-seed", expected="another", mend="change it")
    fly = _Flights(task_ids, seed, samples, tell)
    renamed = _most_used_tool(desk, task_ids)
    from flightschool.engines import load_model

    loaded = load_model(folder)
    policy = _engine_policy(loaded, name, temperature, max_new_tokens)
    fly("frozen", load_environment(frozen.environment, space), policy)
    fly("other seed", build_environment(seed=other_seed), policy, note=f"desk?seed={other_seed}")
    with as_file(files("flightschool.environments.desk") / "wording_paraphrase.toml") as wording:
        fly("paraphrased", build_environment(wording=wording), policy, note=wording.name)
    other = build_environment(rename={renamed: new_name(renamed)})
    fly("renamed tool", other, policy, note=f"{renamed} is called {new_name(renamed)}")
    randomise_attention_outputs(loaded, derive_seed("randomised", seed))
    broken = _engine_policy(loaded, f"{name}, randomised", temperature, max_new_tokens)
    fly("randomised", desk, broken, note="attention output weights drawn anew, of the same spread")
    fly("fitted", desk, FittedPolicy([desk.reference(task_id) for task_id in task_ids]), note="scripted, one template")
    return _summarise(name, frozen, desk, task_ids, fly.variants)


def trained_tasks(suite: Suite) -> tuple[str, ...]:
    """Ids of the suite's tasks whose strata the training was declared to train, in the suite's order.

    Raises:
        GateError: the freeze declares no trained stratum.
    """
    families = {family for share in suite.strata if share.trained for family in share.families}
    found = tuple(task_id for task_id in suite.task_digests if task_id.rpartition("-")[0] in families)
    if not found:
        raise GateError(
            "the suite declares no trained stratum with tasks of the desk",
            where=f"suite {suite.name}",
            expected="a suite of the worked domain, frozen with trained strata",
            mend="run flightschool quickstart, and this in its workspace",
        )
    return found


def new_name(tool: str) -> str:
    """Another name for a tool that still says what it does: ``get_order`` gives ``fetch_order``."""
    verb, _, rest = tool.partition("_")
    return f"{OTHER_VERBS.get(verb, 'do_' + verb)}_{rest}" if rest else f"do_{tool}"


def randomise_attention_outputs(loaded: LoadedModel, seed: int) -> int:
    """Draw the attention output projections of all layers anew, in memory; returns how many weights that were.

    Normal, with the standard deviation that each matrix has, so that nothing but what was learned is lost.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    count = 0
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if name.endswith("o_proj.weight"):
                drawn = torch.randn(weight.shape, generator=generator) * weight.float().std().cpu()
                weight.copy_(drawn.to(weight.dtype))
                count += weight.numel()
    return count


# ------------------------------------------------------------------------------------------------ parts


class _Flights:
    """Flies the same task ids in one environment after the other, with equal seeds."""

    def __init__(self, task_ids: Sequence[str], seed: int, samples: int, tell: Callable[[Variant], None]) -> None:
        self.variants: dict[str, Variant] = {}
        self._task_ids = [task_id for task_id in task_ids for _ in range(samples)]
        self._seed = seed
        self._tell = tell

    def __call__(self, name: str, environment: Environment, policy: Policy, note: str = "") -> None:
        tasks = [environment.task(task_id) for task_id in self._task_ids]
        runner = EpisodeRunner(environment, OutcomeReward(RewardSettings()), run=f"bench-robustness-{name}")
        attempts = run_attempts(runner, tasks, policy, seed=self._seed, concurrency=CONCURRENCY)
        graded = [(task, attempt.reward) for task, attempt in zip(tasks, attempts, strict=True) if attempt.reward]
        values = [float(reward.success) for _, reward in graded]
        self.variants[name] = _variant(name, values, [task for task, _ in graded], len(tasks) - len(graded), note)
        self._tell(self.variants[name])


def _variant(name: str, values: Sequence[float], tasks: Sequence[Task], num_missing: int, note: str) -> Variant:
    if not values:
        raise GateError(
            f"nothing of variant {name!r} was graded",
            where="bench robustness",
            expected="attempts with a grade",
            mend="see why with flightschool rollout",
        )
    interval = cluster_bootstrap_mean(values, [task.family for task in tasks])
    return Variant(
        name=name,
        success=statistics.fmean(values),
        low=interval.low,
        high=interval.high,
        num_attempts=len(values),
        num_missing=num_missing,
        note=note,
    )


def _suite(space: Workspace, name: str) -> Suite:
    """The frozen suite; that its environment is unchanged is checked by whoever loads it."""
    from flightschool.evaluation import load_suite

    stored = space.store.get("suite", name, Suite)
    return load_suite(space.store, name, load_environment(stored.environment, space))


def _require_desk(suite: Suite, desk: DeskEnvironment, task_ids: Sequence[str]) -> None:
    known = {task.id: task.digest for task in desk.tasks()}
    foreign = [task_id for task_id in task_ids if known.get(task_id) != suite.task_digests[task_id]]
    if foreign:
        raise GateError(
            f"{len(foreign)} tasks of the suite are not the desk's, such as {foreign[0]!r}",
            where=f"suite {suite.name}",
            expected="a suite of the worked domain: only there other seeds, words and names can be generated",
            mend="run flightschool quickstart, and this in its workspace",
        )


def _most_used_tool(desk: DeskEnvironment, task_ids: Sequence[str]) -> str:
    """The tool that the most tasks need: renaming it touches most."""
    used: Counter[str] = Counter()
    for task_id in task_ids:
        used.update({call.name for call in desk.reference(task_id).oracle})
    return min(used, key=lambda tool: (-used[tool], tool))


def _engine_policy(loaded: LoadedModel, name: str, temperature: float, max_new_tokens: int) -> Policy:
    from flightschool.engines import TorchEngine
    from flightschool.rollouts import EnginePolicy, Sampling

    sampling = Sampling(temperature=temperature, max_new_tokens=max_new_tokens)
    return EnginePolicy(TorchEngine(loaded), loaded.tokenizer, name, sampling)


def _summarise(
    model: str, suite: Suite, desk: DeskEnvironment, task_ids: Sequence[str], variants: Mapping[str, Variant]
) -> RobustnessBench:
    success = {name: variant.success for name, variant in variants.items()}
    least = round(success["frozen"] - MOST_LOSS, 9)
    targets = (
        more_than("success, frozen", success["frozen"], MOST_RANDOMISED),  # else no variant could show anything
        *(at_least(f"success, {name}", success[name], least) for name in ("other seed", "paraphrased", "renamed tool")),
        at_most("success, randomised", success["randomised"], MOST_RANDOMISED),
        msgspec.structs.replace(
            at_most("success, fitted", success["fitted"], MOST_FITTED),
            relation="<",
            met=success["fitted"] < MOST_FITTED,
        ),
    )
    return RobustnessBench(
        model=model,
        suite=suite.name,
        families=tuple(dict.fromkeys(desk.task(task_id).family for task_id in task_ids)),
        success_frozen=success["frozen"],
        success_other_seed=success["other seed"],
        success_paraphrased=success["paraphrased"],
        success_renamed=success["renamed tool"],
        success_randomised=success["randomised"],
        success_fitted=success["fitted"],
        variants=tuple(variants.values()),
        targets=targets,
        met=all_met(targets),
    )
