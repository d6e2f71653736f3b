"""Variants of the suite's families: what is flown, and which controls must fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from flightschool.bench import FittedPolicy, Variant, bench_robustness
from flightschool.bench.robustness import new_name, randomise_attention_outputs, trained_tasks
from flightschool.engines import load_model
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation import freeze, save_frozen
from flightschool.records import Suite
from flightschool.rollouts import EpisodeRunner, run_attempts
from flightschool.store import Workspace
from flightschool.verification import OutcomeReward, RewardSettings


@pytest.fixture(scope="module")
def desk() -> DeskEnvironment:
    return build_environment()


@pytest.fixture(scope="module")
def suite(desk: DeskEnvironment) -> Suite:
    frozen = freeze(
        desk,
        "checkride",
        strata="stratum",
        suite_fraction=0.1,
        holdout_fraction=0.1,
        seed=0,
        trained=("two_step",),
        max_tasks_per_family=1,
    )
    return frozen.suite


@pytest.fixture
def space(tmp_path: Path, suite: Suite, desk: DeskEnvironment) -> Iterator[Workspace]:
    frozen = freeze(
        desk,
        "checkride",
        strata="stratum",
        suite_fraction=0.1,
        holdout_fraction=0.1,
        seed=0,
        trained=("two_step",),
        max_tasks_per_family=1,
    )
    with Workspace.create(tmp_path / "space") as made:
        save_frozen(made.store, frozen)
        yield made


def test_only_the_trained_families_of_the_suite_are_flown(desk: DeskEnvironment, suite: Suite) -> None:
    ids = trained_tasks(suite)
    assert ids
    assert {desk.task(task_id).stratum for task_id in ids} == {"two_step"}
    assert set(ids) < set(suite.task_digests)
    untrained = [msgspec.structs.replace(share, trained=False) for share in suite.strata]
    with pytest.raises(GateError, match="no trained stratum"):
        trained_tasks(msgspec.structs.replace(suite, strata=tuple(untrained)))


def test_one_template_solves_its_own_tasks_and_hardly_any_other(desk: DeskEnvironment) -> None:
    tasks = [task for task in desk.tasks() if task.stratum == "two_step"]
    policy = FittedPolicy([desk.reference(task.id) for task in tasks])
    runner = EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="fitted")
    attempts = run_attempts(runner, tasks, policy, seed=0)
    solved = {a.task for a in attempts if a.reward is not None and a.reward.success}
    assert 0 < len(solved) / len(tasks) < 0.5
    shapes = {task.id: tuple((c.name, tuple(c.arguments)) for c in desk.reference(task.id).oracle) for task in tasks}
    assert {task_id for task_id, shape in shapes.items() if shape == policy.template} <= solved


def test_names_stay_telling() -> None:
    assert new_name("get_order") == "fetch_order"
    assert new_name("notify") == "do_notify"
    assert new_name("assign_order") == "do_assign_order"


def test_randomising_replaces_attention_outputs_alone_and_keeps_their_spread(model_folder: Path) -> None:
    import torch

    plain, loaded = load_model(model_folder), load_model(model_folder)
    count = randomise_attention_outputs(loaded, seed=1)
    assert count > 0
    before = dict(plain.model.named_parameters())
    for name, weight in loaded.model.named_parameters():
        same = torch.equal(weight, before[name])
        assert same is not name.endswith("o_proj.weight"), name
        if not same:
            assert float(weight.detach().std()) == pytest.approx(float(before[name].detach().std()), rel=0.2)
    again = load_model(model_folder)
    randomise_attention_outputs(again, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), loaded.model.parameters(), strict=True))


def test_every_variant_is_flown_with_the_same_tasks(space: Workspace, suite: Suite, model_folder: Path) -> None:
    told: list[Variant] = []
    measured = bench_robustness(model_folder, space, name="tiny", max_new_tokens=4, samples=2, tell=told.append)
    names = ["frozen", "other seed", "paraphrased", "renamed tool", "randomised", "fitted"]
    assert [variant.name for variant in measured.variants] == names == [variant.name for variant in told]
    assert {variant.num_attempts for variant in measured.variants} == {2 * len(trained_tasks(suite))}
    assert measured.success_randomised <= 0.15
    assert {target.name for target in measured.targets} == {f"success, {name}" for name in names}
    assert not measured.met  # a model that never succeeds cannot show that it is robust
    assert [target.name for target in measured.targets if not target.met] == ["success, frozen"]


def test_a_suite_of_something_else_is_refused(space: Workspace, model_folder: Path) -> None:
    with pytest.raises(InputError, match="the other seed"):
        bench_robustness(model_folder, space, name="tiny", other_seed=0)
    with pytest.raises(NotFoundError):
        bench_robustness(model_folder, space, name="tiny", suite="nowhere")
