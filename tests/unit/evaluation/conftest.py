"""Runs made by hand, and an environment with enough families to be split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.unit.evaluation.sealed import TRACES

from flightschool.digest import digest
from flightschool.environments import build_from_traces, save_environment
from flightschool.errors import NotFoundError
from flightschool.evaluation import EvaluationItem, EvaluationRun
from flightschool.governance import KeyRing
from flightschool.records import EndReason, Outcome, Task
from flightschool.store import SqlStore, Workspace
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.traces import save_traces

WORDS = ("oil", "weld", "paint", "lift", "drain", "heat", "cool", "press", "mill", "saw", "bend", "pack")


class Workshop(MiniatureEnvironment):
    """Two strata of six families, each with five tasks of its own wording. Nothing of it is ever attempted."""

    strata: Mapping[str, float] = {"easy": 0.7, "hard": 0.3}

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Task] = {}
        for index, verb in enumerate(WORDS):
            for number in range(5):
                task = Task(
                    id=f"{verb}-{number}",
                    family=verb,
                    stratum="easy" if index < 6 else "hard",
                    instruction=f"{verb} {verb}ing {verb}er {verb}ed {verb}able {number}",
                    initial_state="prices",
                )
                self.rows[task.id] = task

    @property
    def digest(self) -> str:
        return digest(list(self.rows.values()))

    def tasks(self) -> Sequence[Task]:
        return tuple(self.rows.values())

    def task(self, task_id: str) -> Task:
        if task_id not in self.rows:
            raise NotFoundError(f"no task {task_id}")
        return self.rows[task_id]


def make_run(
    successes: Sequence[bool | None],
    *,
    families: int = 8,
    strata: Sequence[str] = ("a",),
    weights: Mapping[str, float] | None = None,
    repeats: int = 1,
    policy: str = "p",
    virtual_ms: float = 100.0,
    **fields: object,
) -> EvaluationRun:
    """A run of one item a success; families and strata are taken in turn (whole families lie in one stratum)."""
    items = [
        EvaluationItem(
            task=f"t{index // repeats}",
            family=f"f{index // repeats % families}",
            stratum=strata[index // repeats % families % len(strata)],
            trained=strata[index // repeats % families % len(strata)] == "a",
            repeat=index % repeats,
            seed=index,
            success=success,
            outcome=Outcome.INFRA_FAILURE if success is None else Outcome.SCORED,
            reason=EndReason.ENGINE_ERROR if success is None else EndReason.FINISHED,
            violations=() if success else ("rule",),
            virtual_ms=virtual_ms,
            num_tokens=10,
            num_calls=2,
            num_retries=0,
            attempt=f"{policy}{index}",
            attempt_digest="d",
        )
        for index, success in enumerate(successes)
    ]
    base: dict[str, object] = {
        "id": policy,
        "suite": "s",
        "suite_digest": "sd",
        "environment": "e",
        "environment_digest": "ed",
        "composition_digest": "cd",
        "policy": policy,
        "noise": "clean",
        "noise_digest": "",
        "repeats": repeats,
        "seed": 0,
        "holdout": False,
        "weights": dict(weights) if weights is not None else {name: 1 / len(strata) for name in strata},
        "items": tuple(items),
    }
    return EvaluationRun(**{**base, **fields})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def run_of() -> Callable[..., EvaluationRun]:
    """Makes runs by hand (see ``make_run``)."""
    return make_run


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = SqlStore("sqlite://")
    yield opened
    opened.close()


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with traces and the environment of them, nothing sealed yet."""
    with Workspace.create(tmp_path / "space") as made:
        save_traces(made.store, "june", TRACES)
        save_environment(made.store, build_from_traces(TRACES, "june"))
        yield made


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path / "keys", outside=tmp_path / "space")
