from __future__ import annotations

import reprlib
from typing import Any

import pytest

from flightschool.errors import GateError, InputError
from flightschool.evaluation import EvaluationRun, compare, evaluate, repeated, summarise
from flightschool.perturbation import FaultProfile, profile
from flightschool.protocols import World, WorldReply
from flightschool.records import Attempt, Outcome, StratumShare, Suite, Task, ToolCall
from flightschool.rollouts import NoopPolicy, OraclePolicy, Policy
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward


def whole_suite(environment: MiniatureEnvironment) -> Suite:
    tasks = environment.tasks()
    strata = tuple(
        StratumShare(
            name=name,
            weight=share,
            num_tasks=sum(task.stratum == name for task in tasks),
            families=tuple({task.family: None for task in tasks if task.stratum == name}),
            trained=name == "copy",
        )
        for name, share in environment.strata.items()
    )
    return Suite(
        name="whole",
        environment=environment.name,
        environment_digest=environment.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=strata,
    )


def measure(
    environment: MiniatureEnvironment,
    policy: Policy,
    *,
    run: str = "r",
    repeats: int = 1,
    seed: int = 0,
    weather: FaultProfile | None = None,
) -> EvaluationRun:
    return evaluate(
        whole_suite(environment),
        environment,
        policy,
        composition=OutcomeReward(),
        run=run,
        repeats=repeats,
        seed=seed,
        weather_profile=weather,
    )


def test_a_result_is_never_written_out_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's end wrote out the whole result for nobody, which doubled the memory of large evaluations."""
    written = []

    def note(writer: reprlib.Repr, value: object, level: int) -> str:
        written.append(type(value))
        return "…"

    monkeypatch.setattr(reprlib.Repr, "repr_instance", note)
    environment = MiniatureEnvironment()
    assert measure(environment, OraclePolicy(environment)).items
    assert EvaluationRun not in written


def test_the_oracle_succeeds_everywhere_and_doing_nothing_nowhere() -> None:
    environment = MiniatureEnvironment()
    oracle, noop = measure(environment, OraclePolicy(environment)), measure(environment, NoopPolicy())
    assert [item.success for item in oracle.items] == [True] * len(environment.tasks())
    assert not any(item.success for item in noop.items)
    assert [item.task for item in oracle.items] == [task.id for task in environment.tasks()]
    assert {item.trained for item in oracle.items if item.stratum == "locked"} == {False}
    assert {item.num_calls for item in oracle.items} == {2}


def test_equal_seeds_pair_items_and_repeat_runs_exactly() -> None:
    environment = MiniatureEnvironment()
    first = measure(environment, OraclePolicy(environment), run="one", repeats=2)
    again = measure(environment, OraclePolicy(environment), run="two", repeats=2)
    other = measure(environment, NoopPolicy(), run="three", repeats=2)
    assert first.digest == again.digest
    assert [item.seed for item in first.items] == [item.seed for item in other.items]
    assert len({item.seed for item in first.items}) == len(first.items)
    assert [(i.task, i.repeat) for i in first.items[:2]] == [("copy-bolt-gear", 0), ("copy-bolt-gear", 1)]
    assert measure(environment, NoopPolicy(), seed=1).items[0].seed != other.items[0].seed


def test_a_profile_without_faults_is_clean_weather() -> None:
    environment = MiniatureEnvironment()
    clean = measure(environment, OraclePolicy(environment), weather=profile("clean"))
    assert (clean.noise, clean.noise_digest) == ("clean", "")
    noisy = measure(environment, OraclePolicy(environment), weather=profile("storm"))
    assert noisy.noise == "storm"
    with pytest.raises(GateError, match="differ in noise_digest"):
        compare(clean, noisy)


class _Broken(MiniatureWorld):
    """Breaks on every write."""

    def execute(self, call: ToolCall) -> WorldReply:
        if call.name == "set_price":
            raise OSError("disk full")
        return super().execute(call)


class _Breaking(MiniatureEnvironment):
    """Worlds whose first ones, or all, break."""

    num_broken = 0

    def open(self, task: Task) -> World:
        if task.stratum == "copy" and self.num_broken > 0:
            self.num_broken -= 1
            return _Broken()
        return super().open(task)


def test_infra_failures_are_retried_under_new_numbers() -> None:
    environment = _Breaking()
    environment.num_broken = 1
    seen: list[Attempt] = []
    run = evaluate(
        whole_suite(environment),
        environment,
        OraclePolicy(environment),
        composition=OutcomeReward(),
        run="r",
        on_attempt=seen.append,
    )
    assert run.num_missing == 0
    assert sum(item.num_retries for item in run.items) == 1
    assert [a.number for a in seen if a.outcome is Outcome.INFRA_FAILURE] == [0]
    assert len(seen) == len(run.items) + 1


def test_what_stays_broken_is_missing_and_said_aloud_never_a_zero() -> None:
    environment = _Breaking()
    environment.num_broken = 10**6
    run = measure(environment, OraclePolicy(environment))
    num_copy = sum(task.stratum == "copy" for task in environment.tasks())
    assert run.num_missing == num_copy
    assert {item.success for item in run.items if item.stratum == "copy"} == {None}
    with pytest.raises(GateError, match=f"{num_copy} of {len(run.items)} items have no grade"):
        compare(run, run)
    summary = summarise(run)
    assert summary.num_missing == num_copy
    assert (summary.low_bound, summary.high_bound) == (1 / len(run.items), 1.0)
    assert any("no grade" in note for note in summary.notes)
    assert any("nothing can be said of stratum copy" in note for note in summary.notes)


def test_an_environment_that_changed_is_not_measured() -> None:
    environment = MiniatureEnvironment()
    suite = whole_suite(environment)
    environment._tasks["copy-bolt-gear"] = environment.task("copy-bolt-pump")
    with pytest.raises(GateError, match="copy-bolt-gear"):
        evaluate(suite, environment, NoopPolicy(), composition=OutcomeReward(), run="r")


def test_progress_reaches_the_end_and_no_repeats_are_refused() -> None:
    environment = MiniatureEnvironment()
    seen: list[tuple[int, int]] = []
    evaluate(
        whole_suite(environment),
        environment,
        NoopPolicy(),
        composition=OutcomeReward(),
        run="r",
        progress=lambda done, of: seen.append((done, of)),
    )
    assert seen[-1] == (len(environment.tasks()),) * 2
    with pytest.raises(InputError):
        measure(environment, NoopPolicy(), repeats=0)


def test_a_killed_evaluation_goes_on_with_what_was_kept() -> None:
    environment = MiniatureEnvironment()
    suite = whole_suite(environment)
    seen: list[Attempt] = []

    def run_with(kept: dict[tuple[str, int], Attempt], policy: Policy) -> tuple[EvaluationRun, int]:
        seen.clear()
        done = evaluate(
            suite, environment, policy, composition=OutcomeReward(), run="r", on_attempt=seen.append, kept=kept
        )
        return done, len(seen)

    whole, num = run_with({}, OraclePolicy(environment))
    half = {(attempt.task, attempt.index): attempt for attempt in seen[: num // 2]}
    again, made = run_with(half, OraclePolicy(environment))
    assert again.digest == whole.digest
    assert made == num - len(half)
    other, made = run_with(half, NoopPolicy())  # attempts of another policy do not fit
    assert made == num
    assert not any(item.success for item in other.items)


def test_the_error_of_one_attempt_is_the_evaluations() -> None:
    class Raising(NoopPolicy):
        @property
        def name(self) -> str:  # type: ignore[override]
            raise LookupError("no name")

    environment = MiniatureEnvironment()
    with pytest.raises(LookupError, match="no name"):
        evaluate(whole_suite(environment), environment, Raising(), composition=OutcomeReward(), run="r")


def test_pass_at_k_and_hat_k_of_a_run_by_hand(run_of: Any) -> None:
    """Two strata; task 0 succeeds 3 of 4 times, task 1 never, tasks 2 and 3 always."""
    marks = [True, True, True, False, *[False] * 4, *[True] * 8]
    run = run_of(marks, repeats=4, families=4, strata=("a", "b"), weights={"a": 0.8, "b": 0.2})
    found = repeated(run)
    assert list(found) == ["pass@2", "pass^2", "pass@4", "pass^4"]
    # tasks 0 and 2 are of "a", 1 and 3 of "b": .8 · mean(1, 1) + .2 · mean(0, 1); 1 − C(1, 2)/C(4, 2) = 1
    assert found["pass@2"].value == pytest.approx(0.9)
    assert found["pass^2"].value == pytest.approx(0.8 * (0.5 + 1) / 2 + 0.1)  # C(3, 2)/C(4, 2) = ½
    assert found["pass^4"].value == pytest.approx(0.8 * 0.5 + 0.1)
    assert found["pass^4"].low < 0.5 < found["pass^4"].high
    assert repeated(run_of([True, False, True])) == {}
    missing = run_of([True, None, True, True], repeats=2, families=2)
    assert repeated(missing) == {}  # one task has two grades: no mean of one


def test_one_stratum_of_independent_tasks_has_an_exact_interval(run_of: Any) -> None:
    whole = summarise(run_of([True] * 5, families=5))
    headline = whole.measurement("success/weighted")
    assert "blaker" in headline.method
    assert (headline.value, headline.high) == (1.0, 1.0)
    assert headline.low == pytest.approx(0.5, abs=0.02)
