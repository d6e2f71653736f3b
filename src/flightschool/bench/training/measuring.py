"""``bench training``: every figure of the trainer that is promised, part by part, and what could not be measured."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from flightschool.bench.targets import Target, all_met, at_least, at_most
from flightschool.bench.training.duel import Duel, Race, duel, race
from flightschool.bench.training.kernels import Kernels
from flightschool.bench.training.kills import Kills, fly_with_kills
from flightschool.bench.training.limits import bound_tokens_per_s
from flightschool.bench.training.orders import Kind
from flightschool.bench.training.overlap import LEAST_GROUPS, Flown, Mode, Overlap, draw_together
from flightschool.bench.training.peer import MEASURING, ask, peer_python
from flightschool.bench.training.workload import make_workload
from flightschool.errors import FlightschoolError, InputError
from flightschool.records import Record

__all__ = ["DEFAULT_PARTS", "PARTS", "Plan", "TrainingBench", "bench_training"]

PARTS = ("kernels", "overlap", "tokens", "multi", "wall", "kills")
DEFAULT_PARTS = PARTS[:-1]
"""Without those that are measured only where they are named: fifty starts of a run take minutes."""
_KEYS = {
    "kernels": ("generation_share_of_limit", "training_share_of_peak", "training_share_of_torch_peak"),
    "overlap": (
        "async_share_of_bound",
        "async_over_two_threads",
        "equal_final_reward",
        "trainer_idle",
        "waste",
        "length_bias",
        "expired_token_share",
        "batch_inflation",
        "staleness_bound",
        "max_trained_staleness",
        "ess",
    ),
    "tokens": ("trl_ratio_tokens", "trl_ratio_tokens_async"),
    "multi": ("trl_ratio_multi", "trl_ratio_multi_async", "multi_share_of_bound", "multi_share_of_torch_bound"),
    "wall": ("trl_ratio_wall", "trl_ratio_wall_async"),
    "kills": ("num_kills", "lineage_faults", "attempts_lost", "killed_groups_trained"),
}
_TINY_RATE = 1e-9
_GOAL = 0.9


class Plan(Record, frozen=True, kw_only=True):
    """Sizes. Both sides always get the same."""

    group_size: int = 8
    groups_per_step: int = 4
    multi_groups: int = 4
    """Groups a step over three turns: as many rows as the bound decodes at once."""
    measured_steps: int = 5
    more_own_steps: int = 0
    """Measured steps of ours beyond those of the peer, whose steps take ten times as long."""
    repeats: int = 3
    max_new_tokens: int = 48
    num_threads: int = 2
    with_async: bool = True
    race_steps: int = 30
    race_most_ratio: float = 10.0
    race_most_s: float = 3600.0
    overlap_steps: int = 61
    num_kills: int = 50


QUICK = Plan(
    groups_per_step=1,
    multi_groups=2,
    measured_steps=1,
    more_own_steps=2,
    repeats=1,
    with_async=False,
    overlap_steps=12,
    num_kills=5,
)
_NOT_QUICK = frozenset({"wall"})
"""Left out by ``quick``: the peer alone would take longer than all the rest."""
FULL = Plan()


class TrainingBench(Record, frozen=True, kw_only=True):
    """The figures; null where a part was not or could not be measured, and ``reasons`` says why."""

    trl_ratio_tokens: float | None = None
    """Completion tokens trained a second, ours / TRL's: one turn, both synchronous, two threads."""
    trl_ratio_tokens_async: float | None = None
    """The same with our trainer and generation overlapping, one thread each."""
    trl_ratio_multi: float | None = None
    """The same over three turns with two tools."""
    trl_ratio_multi_async: float | None = None
    multi_share_of_bound: float | None = None
    """Ours over three turns / the bound of ``limits.bound_tokens_per_s``, by the fastest kernel at hand."""
    multi_share_of_torch_bound: float | None = None
    """The same beside the bound of one who multiplies by torch's own kernel."""
    trl_ratio_wall: float | None = None
    """Wall time until rollouts on fresh tasks succeed in .9, TRL's / ours: both synchronous, two threads."""
    trl_ratio_wall_async: float | None = None
    """The same with our trainer and generation overlapping, one thread each."""
    trl_ratio_wall_is_lower_bound: bool = False
    """Whether TRL had not reached it in one of the races when its time was over."""
    generation_share_of_limit: float | None = None
    training_share_of_peak: float | None = None
    """Of the fastest kernel's peak."""
    training_share_of_torch_peak: float | None = None
    """Of the peak of torch's own kernel: above 1 where ours multiplies by a faster one."""
    async_share_of_bound: float | None = None
    async_over_two_threads: float | None = None
    """Groups a second, asynchronous with one thread a station / synchronous with two threads."""
    equal_final_reward: bool | None = None
    """Whether overlapping costs less than ``overlap.MARGIN`` of the final reward, at 95 %."""
    trainer_idle: float | None = None
    waste: float | None = None
    length_bias: float | None = None
    expired_token_share: float | None = None
    batch_inflation: float | None = None
    staleness_bound: int | None = None
    max_trained_staleness: int | None = None
    ess: float | None = None
    num_kills: int | None = None
    """By which stations of runs were ended, at random moments."""
    lineage_faults: int | None = None
    """Places lost or doubled, tokens over the bound and contradictions in the exports of those runs."""
    attempts_lost: int | None = None
    """Attempts that had ended and could have trained, and were made again."""
    killed_groups_trained: int | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """Key → why it is null."""
    others: dict[str, float] = msgspec.field(default_factory=dict)
    """Part → mean cores that other processes used, in its worst flight; above .1 the machine was not quiet."""
    quick: bool = False
    wall_s: float = 0.0
    kernels: Kernels | None = None
    overlap: Overlap | None = None
    flown: dict[str, Flown] = msgspec.field(default_factory=dict)
    tokens: Duel | None = None
    multi: Duel | None = None
    multi_bound_tokens_per_s: float | None = None
    wall: tuple[Race, ...] = ()
    kills: Kills | None = None
    targets: tuple[Target, ...] = ()
    met: bool = False
    """Whether a target was measured, every one that was is met, and nothing failed that was asked for."""


class _Bench:
    """Parts in their order; each returns fields of the record."""

    def __init__(self, plan: Plan, model: Path | None, scratch: Path, tell: Callable[[str], None]) -> None:
        self.plan, self.scratch, self.tell = plan, scratch, tell
        self._model = model
        self.python: Path | None = None
        self.fields: dict[str, object] = {}
        self.others: dict[str, float] = {}

    @property
    def model(self) -> Path:
        """Fetched only where a part asks for it."""
        self._model = self._model or _default_model()
        return self._model

    def kernels(self) -> None:
        """Generation and training pass beside the limits of the machine."""
        self.tell("limits of the machine, generation, training pass")
        command = [*MEASURING, "kernels", str(self.model), str(self.plan.num_threads)]
        answered = ask(command)
        found = msgspec.json.decode(answered.answer, type=Kernels)
        self.others["kernels"] = answered.others
        self.fields |= {
            "kernels": found,
            "generation_share_of_limit": found.generation.share_of_limit,
            "training_share_of_peak": found.training.share_of_peak,
            "training_share_of_torch_peak": found.training.gflops / found.limits.torch_gflops,
        }

    def overlap(self) -> None:
        """Asynchronous and synchronous runs with slow tools."""
        flown: dict[str, Flown] = {}
        modes: tuple[Mode, ...] = ("sync", "async", "sync_two_threads")
        for mode in modes:
            self.tell(f"tools of heavy-tailed latency: {mode}, {self.plan.overlap_steps} steps")
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                words = [mode, str(self.plan.overlap_steps), f"{folder}/run"]
                answered = ask([*MEASURING, "overlap", *words])
            flown[mode] = msgspec.json.decode(answered.answer, type=Flown)
            self.others["overlap"] = max(self.others.get("overlap", 0.0), answered.others)
        drawn = draw_together(flown["async"], flown["sync"], flown["sync_two_threads"])
        published = {key: getattr(flown["async"], key) for key in _KEYS["overlap"] if key in Flown.__struct_fields__}
        self.fields |= {
            **published,
            "overlap": drawn,
            "flown": flown,
            "async_share_of_bound": drawn.share_of_bound,
            "async_over_two_threads": drawn.speedup_over_two_threads,
            "equal_final_reward": drawn.equal_reward,
        }

    def tokens(self) -> None:
        """One turn beside TRL."""
        found = self._duel("refund", self.plan.groups_per_step)
        self.fields |= {
            "tokens": found,
            "trl_ratio_tokens": found.ratio,
            "trl_ratio_tokens_async": found.ratio_async,
        }

    def multi(self) -> None:
        """Three turns with tools beside TRL, and beside the bound."""
        found = self._duel("orders", self.plan.multi_groups)
        self.fields |= {
            "multi": found,
            "trl_ratio_multi": found.ratio,
            "trl_ratio_multi_async": found.ratio_async,
        }
        kernels = self.fields.get("kernels")
        if isinstance(kernels, Kernels):
            measured = [step for side in found.ours for step in side.measured]
            bound = bound_tokens_per_s(kernels.limits, measured)
            by_torch = bound_tokens_per_s(kernels.limits.by_torch(), measured)
            self.fields |= {
                "multi_bound_tokens_per_s": bound,
                "multi_share_of_bound": found.tokens_per_s / bound,
                "multi_share_of_torch_bound": found.tokens_per_s / by_torch,
            }

    def wall(self) -> None:
        """Wall time to success beside TRL, each repeat on orders of its own."""
        races = tuple(self._race(seed) for seed in range(self.plan.repeats))
        self.others["wall"] = max(found.others for found in races)
        self.fields |= {
            "wall": races,
            "trl_ratio_wall": _median(found.ratio for found in races),
            "trl_ratio_wall_async": _median(found.ratio_async for found in races),
            "trl_ratio_wall_is_lower_bound": any(found.is_lower_bound for found in races),
        }

    def kills(self) -> None:
        """Stations ended by kill -9 at random moments, and what the lineage shows of it."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            found = fly_with_kills(self.plan.num_kills, Path(folder), tell=self.tell)
        self.fields |= {
            "kills": found,
            "num_kills": found.num_kills,
            "lineage_faults": found.lost + found.doubled + found.over_bound + found.malformed,
            "attempts_lost": found.attempts_lost,
            "killed_groups_trained": found.num_groups_trained,
        }

    def _race(self, seed: int) -> Race:
        plan = self.plan
        work, _ = make_workload(
            "refund",
            self.model,
            seed=seed,
            group_size=plan.group_size,
            groups_per_step=plan.groups_per_step,
            num_steps=plan.race_steps,
            max_new_tokens=plan.max_new_tokens,
            learning_rate=1e-5,
            reward="outcome",
            num_threads=plan.num_threads,
            goal=_GOAL,
        )
        return race(
            work, self.scratch, self.python, most_ratio=plan.race_most_ratio, most_s=plan.race_most_s, tell=self.tell
        )

    def _duel(self, kind: Kind, num_groups: int) -> Duel:
        plan = self.plan
        work, _ = make_workload(
            kind,
            self.model,
            group_size=plan.group_size,
            groups_per_step=num_groups,
            num_steps=1 + plan.measured_steps + plan.more_own_steps,
            max_new_tokens=plan.max_new_tokens,
            learning_rate=_TINY_RATE,
            reward="random",
            num_threads=plan.num_threads,
        )
        found = duel(
            work,
            self.scratch,
            self.python,
            peer_steps=1 + plan.measured_steps,
            repeats=plan.repeats,
            with_async=plan.with_async,
            tell=self.tell,
        )
        self.others["tokens" if kind == "refund" else "multi"] = found.others
        return found


def bench_training(
    *,
    quick: bool = False,
    peer: bool = True,
    steps: int | None = None,
    repeats: int | None = None,
    parts: Collection[str] = DEFAULT_PARTS,
    model: Path | None = None,
    plan: Plan | None = None,
    scratch: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> TrainingBench:
    """Measure.

    Args:
        quick: smaller batches, one measured step (three of ours), one repeat.
        peer: whether TRL is installed and measured.
        steps: measured optimizer steps of a flight beside TRL, instead of the plan's.
        repeats: of those flights, instead of the plan's.
        parts: which; all but ``kills`` by default.
        model: folder of a Llama of the ChatML format; SmolLM2-135M by default.
        plan: sizes instead of those of ``quick``.
        scratch: folder for runs; a temporary one by default.
        tell: is called with a line before what takes long.

    Raises:
        InputError: a part is not known.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise InputError(f"no part {unknown[0]!r}", where="parts", expected=", ".join(PARTS), mend="correct it")
    started = time.perf_counter()
    chosen = plan or (QUICK if quick else FULL)
    chosen = msgspec.structs.replace(
        chosen,
        measured_steps=steps or chosen.measured_steps,
        more_own_steps=0 if steps else chosen.more_own_steps,
        repeats=repeats or chosen.repeats,
    )
    asked = {part: "" if part in parts else "left out: --parts" for part in PARTS}
    if quick:
        asked |= {part: asked[part] or "left out: --quick" for part in _NOT_QUICK}
    with tempfile.TemporaryDirectory(prefix="flightschool-training-", dir=scratch) as folder:
        bench = _Bench(chosen, model, Path(folder), tell)
        reasons, failed = _fly(bench, asked, peer=peer)
    targets = _targets(bench.fields)
    measured = {**bench.fields, "reasons": reasons, "others": bench.others, "quick": quick}
    met = bool(targets) and all_met(targets) and not failed
    return TrainingBench(**measured, wall_s=time.perf_counter() - started, targets=targets, met=met)  # type: ignore[arg-type]


def _fly(bench: _Bench, asked: Mapping[str, str], *, peer: bool) -> tuple[dict[str, str], bool]:
    """Measure the parts that no reason is given against; why keys are null, and whether anything failed."""
    reasons: dict[str, str] = {}
    no_peer, failed = "left out: --no-peer", False
    if peer and not all(asked[part] for part in ("tokens", "multi", "wall")):
        try:
            bench.python = peer_python(bench.tell)
        except FlightschoolError as error:
            no_peer, failed = str(error), True
    for part, reason in asked.items():
        try:
            if not reason:
                getattr(bench, part)()
        except FlightschoolError as error:
            bench.tell(f"{part}: {error}")
            reason, failed = str(error), True
        if reason:
            reasons |= dict.fromkeys(_KEYS[part], reason)
    for key in (key for keys in _KEYS.values() for key in keys):
        if bench.fields.get(key) is None and key not in reasons:
            reasons[key] = _why_missing(key, no_peer if bench.python is None else "")
    return reasons, failed


def _median(ratios: Iterable[float | None]) -> float | None:
    """Of the races; None where one of them has none."""
    known = list(ratios)
    return None if None in known else statistics.median(ratio for ratio in known if ratio is not None)


def _why_missing(key: str, no_peer: str) -> str:
    if key == "equal_final_reward":
        return f"fewer than {LEAST_GROUPS} groups at the end of a run"
    if not key.startswith("trl_"):
        return "needs the part kernels"
    if no_peer:
        return no_peer
    return f"our asynchronous flight did not reach {_GOAL}" if "wall" in key else "left out: --quick"


def _default_model() -> Path:
    from flightschool.engines import get_model

    return get_model("smollm2-135m")


def _targets(found: dict[str, object]) -> tuple[Target, ...]:
    """Of what was measured."""
    least = {
        "trl_ratio_tokens": 4.0,
        "trl_ratio_multi": 6.0,
        "multi_share_of_bound": 0.6,
        "trl_ratio_wall": 8.0,
        "generation_share_of_limit": 0.6,
        "training_share_of_peak": 0.6,
        "async_share_of_bound": 0.95,
    }
    targets = [
        at_least(name, value, limit) for name, limit in least.items() if isinstance(value := found.get(name), float)
    ]
    if isinstance(oldest := found.get("max_trained_staleness"), int) and isinstance(
        bound := found["staleness_bound"], int
    ):
        targets.append(at_most("max_trained_staleness", oldest, bound))
    if isinstance(expired := found.get("expired_token_share"), float):
        targets.append(at_most("expired_token_share", expired, 0.0))
    targets += [
        at_most(name, faults, 0.0)
        for name in ("lineage_faults", "attempts_lost")
        if isinstance(faults := found.get(name), int)
    ]
    if isinstance(equal := found.get("equal_final_reward"), bool):
        targets.append(at_least("equal_final_reward", float(equal), 1.0))
    return tuple(targets)
