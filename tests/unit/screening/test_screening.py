from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, overrides
from flightschool.records import (
    Attempt,
    EndReason,
    Outcome,
    Reward,
    ScreeningDecision,
    StratumShare,
    Suite,
    Task,
    Timings,
)
from flightschool.screening import TrainingPool, measure_funnel, require_screened, save_decisions, screen
from flightschool.screening.allocation import first_round
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment

MEASURED = MiniatureEnvironment()


def pool_of(num_families: int, members: int = 4) -> TrainingPool:
    tasks = [
        Task(id=f"{f}-{m}", family=f"family {f}", stratum="s", instruction=f"alpha{f} {f}x{m}", initial_state="")
        for f in range(num_families)
        for m in range(members)
    ]
    task = MEASURED.task("locked-pump")
    share = StratumShare(name="locked", weight=1.0, num_tasks=1, families=("locked",), trained=False)
    suite = Suite(
        name="s",
        environment=MEASURED.name,
        environment_digest="d",
        task_digests={task.id: task.digest},
        strata=(share,),
    )
    return TrainingPool(tasks, suites=[suite], environment=MEASURED)


def attempt(task: Task, outcome: float | None, latency: float = 0.0) -> Attempt:
    reward = None
    if outcome is not None:
        total = 0.9 * outcome + 0.1 * latency
        reward = Reward(outcome=outcome, process=0.0, latency=latency, gate=1.0, total=total)
    return Attempt(
        id="a",
        run="r",
        group="g",
        index=0,
        number=0,
        environment="e",
        environment_digest="d",
        task=task.id,
        task_digest=task.digest,
        policy="p",
        seed=0,
        spans=(),
        messages=(),
        events=(),
        outcome=Outcome.SCORED if outcome is not None else Outcome.INFRA_FAILURE,
        reason=EndReason.FINISHED if outcome is not None else EndReason.ENGINE_ERROR,
        cause="policy",
        verdict=None,
        reward=reward,
        end_state="",
        timings=Timings(virtual_ms=1.0),
    )


def rolls(rates: Callable[[Task], float | None]) -> Callable[[Sequence[Task], int], list[Attempt]]:
    def roll(tasks: Sequence[Task], seed: int) -> list[Attempt]:
        draw = random.Random(seed)
        drawn = [(task, rates(task), draw.random()) for task in tasks]
        return [attempt(t, None if p is None else float(u < p), latency=u) for t, p, u in drawn]

    return roll


def by_family(decisions: Sequence[ScreeningDecision], pool: TrainingPool) -> dict[str, list[ScreeningDecision]]:
    family = {task.id: task.family for task in pool}
    grouped: dict[str, list[ScreeningDecision]] = {}
    for decision in decisions:
        grouped.setdefault(family[decision.task], []).append(decision)
    return grouped


def test_families_with_signal_are_admitted_and_hopeless_or_solved_ones_are_not() -> None:
    rates = {"family 0": 0.0, "family 1": 0.5, "family 2": 1.0}
    pool = pool_of(3)
    decisions = screen(pool, rolls(lambda task: rates[task.family]), policy="m", group_size=8, budget=96)
    grouped = by_family(decisions, pool)
    assert not any(d.admitted for d in grouped["family 0"])
    assert all(d.admitted for d in grouped["family 1"])
    assert not any(d.admitted for d in grouped["family 2"])
    assert [d.task for d in decisions] == [task.id for task in pool]


def test_a_task_never_attempted_is_decided_by_its_sisters() -> None:
    pool = pool_of(2, members=40)
    decisions = screen(pool, rolls(lambda task: 0.5 * task.id.startswith("0")), policy="m", group_size=8, budget=64)
    untouched = [d for d in decisions if d.num_rollouts == 0]
    assert untouched
    admitted = Counter((d.task[0], d.admitted) for d in untouched)
    assert set(admitted) == {("0", True), ("1", False)}
    assert all("0 own and" in d.reason for d in untouched)


def test_the_budget_is_never_exceeded_and_infra_failures_are_spent_but_no_evidence() -> None:
    pool = pool_of(4)
    asked: list[int] = []

    def roll(tasks: Sequence[Task], seed: int) -> list[Attempt]:
        asked.append(len(tasks))
        return [attempt(task, None) for task in tasks]

    decisions = screen(pool, roll, policy="m", group_size=4, budget=50)
    assert sum(asked) == sum(d.num_rollouts for d in decisions) <= 50
    assert sum(d.num_scored for d in decisions) == 0
    assert not any(d.admitted for d in decisions)
    assert {d.reason.split(":")[0] for d in decisions} == {"not reached"}


def test_latency_alone_is_no_signal() -> None:
    """Totals differ in every attempt here; what is graded never does."""
    decisions = screen(pool_of(1), rolls(lambda _: 0.0), policy="m", group_size=8, budget=64)
    assert max(d.signal_probability for d in decisions) < 0.1


def test_equal_seeds_give_equal_decisions() -> None:
    def decide(seed: int) -> tuple[ScreeningDecision, ...]:
        return screen(pool_of(5), rolls(lambda _: 0.4), policy="m", group_size=4, budget=60, seed=seed)

    assert decide(3) == decide(3)
    assert decide(3) != decide(4)


def test_the_first_round_looks_twice_into_as_many_families_as_it_can_before_a_third_time_into_any() -> None:
    pool = pool_of(10)
    ample = Counter(task.family for task in first_round(pool.tasks, budget=20, seed=0))
    assert ample == {f"family {f}": 2 for f in range(10)}
    short = Counter(task.family for task in first_round(pool.tasks, budget=11, seed=0))
    assert sorted(short.values()) == [2, 2, 2, 2, 3]
    assert max(Counter(task.family for task in first_round(pool.tasks, budget=1000, seed=0)).values()) == 4


def test_only_a_pool_can_be_screened() -> None:
    with pytest.raises(TypeError, match="TrainingPool"):
        screen(list(pool_of(1)), rolls(lambda _: 0.5), policy="m", group_size=4)  # type: ignore[arg-type]
    for wrong in ({"budget": 0}, {"group_size": 1}, {"threshold": 1.0}):
        with pytest.raises(InputError):
            screen(pool_of(1), rolls(lambda _: 0.5), **{"policy": "m", "group_size": 4, **wrong})  # type: ignore[arg-type]


def test_the_funnel_counts_each_gate() -> None:
    decisions = screen(pool_of(3), rolls(lambda _: 0.5), policy="m", group_size=4, budget=12)
    funnel = measure_funnel(20, 12, decisions)
    assert (funnel.pool, funnel.sound, funnel.screened, funnel.admitted) == (20, 12, 12, 12)
    assert funnel.num_rollouts == funnel.num_scored == 12


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = SqlStore("sqlite://")
    yield opened
    opened.close()


def test_only_admitted_tasks_of_this_model_pass_the_gate(store: SqlStore) -> None:
    pool = pool_of(2)
    save_decisions(
        store, screen(pool, rolls(lambda t: 0.5 * t.id.startswith("0")), policy="m", group_size=8, budget=80)
    )
    good, bad = pool.tasks[:4], pool.tasks[4:]
    assert [d.task for d in require_screened(store, "m", good)] == [task.id for task in good]
    with pytest.raises(GateError, match=r"4 task\(s\) did not pass screening: 1-0 \(signal"):
        require_screened(store, "m", bad)
    with pytest.raises(GateError, match="not screened"):
        require_screened(store, "another model", good)
    with pytest.raises(GateError, match="not screened"):
        require_screened(store, "m", [msgspec.structs.replace(good[0], instruction="changed")])
    assert len(require_screened(store, "m", bad, actor="Vera", reason="ablation")) == 4
    assert [o.gate for o in overrides(AuditLog(store))] == ["screening"]


def test_mixed_rewards_that_only_the_verifiers_errors_explain_are_no_signal() -> None:
    """Family 0 is never solved and family 1 half of the time; a tenth of all wrong work passes."""
    rates = {"family 0": 0.1, "family 1": 0.55}
    pool = pool_of(2)

    def decide(noise: tuple[float, float]) -> dict[str, list[ScreeningDecision]]:
        roll = rolls(lambda task: rates[task.family])
        return by_family(screen(pool, roll, policy="m", group_size=8, budget=128, threshold=0.3, noise=noise), pool)

    raw, freed = decide((0.0, 0.0)), decide((0.1, 0.0))
    assert all(d.admitted for d in raw["family 0"])
    assert not any(d.admitted for d in freed["family 0"])
    assert all(d.admitted for d in freed["family 1"])
    assert "the verifier's errors apart (raw 0." in freed["family 0"][0].reason
