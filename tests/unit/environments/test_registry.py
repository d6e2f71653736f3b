"""Environments by reference: what is kept comes back the same, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from flightschool.environments import (
    build_from_traces,
    environment_names,
    load_environment,
    load_record,
    save_environment,
)
from flightschool.environments.template import init_files
from flightschool.errors import ConfigError, FlightschoolError, InputError, NotFoundError
from flightschool.rollouts import EpisodeRunner, OraclePolicy, run_attempts
from flightschool.store import Workspace
from flightschool.traces import import_traces
from flightschool.verification import OutcomeReward, RewardSettings

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "space") as made:
        yield made


class TestKeeping:
    @pytest.mark.parametrize("with_code", [False, True])
    def test_a_kept_environment_comes_back_with_its_digest(
        self, orders: Orders, workspace: Workspace, with_code: bool
    ) -> None:
        traces = orders.traces(orders.cancelling("A1", "one"), orders.refusing("A5", "five"))
        code, state = (orders.code(), orders.state()) if with_code else (None, None)
        built = build_from_traces(traces, "mine", state=state, code=code)
        record = save_environment(workspace.store, built)
        assert (record.kind, record.num_tasks) == ("functions" if with_code else "recordings", 2)
        assert environment_names(workspace.store) == ("mine",)
        assert load_record(workspace.store, "mine") == record
        if state is not None:
            (state / "orders.json").unlink()  # the workspace keeps the state
        again = load_environment("mine", workspace)
        assert again.digest == built.environment.digest == record.digest
        assert again.tasks() == built.environment.tasks()
        task = again.tasks()[0]
        assert again.open(task).snapshot() == built.environment.open(task).snapshot()

    def test_code_that_changed_is_refused(self, orders: Orders, workspace: Workspace) -> None:
        traces = orders.traces(orders.cancelling("A1", "one"))
        save_environment(workspace.store, build_from_traces(traces, "mine", state=orders.state(), code=orders.code()))
        orders.code(orders.code_text + "\n# changed\n")
        with pytest.raises(InputError, match="no longer what was kept"):
            load_environment("mine", workspace)

    def test_a_record_with_another_digest_is_refused(self, orders: Orders, workspace: Workspace) -> None:
        record = save_environment(
            workspace.store, build_from_traces(orders.traces(orders.cancelling("A1", "one")), "mine")
        )
        workspace.store.put("environments", "mine", msgspec.structs.replace(record, digest="sha256:0"))
        with pytest.raises(InputError) as caught:
            load_environment("mine", workspace)
        assert caught.value.expected == "sha256:0"

    def test_a_whole_environment_comes_back(self, orders: Orders, workspace: Workspace) -> None:
        task = load_environment("desk").tasks()[0]
        traces = orders.traces(orders.episode(ask="x", task=task.id, success=False))
        built = build_from_traces(traces, "plant", code="flightschool.environments.desk")
        assert save_environment(workspace.store, built).kind == "environment"
        again = load_environment("plant", workspace)
        assert (again.name, again.digest, again.strata) == ("plant", built.environment.digest, {task.stratum: 1.0})

    @pytest.mark.parametrize("name", ["desk", "", "a/b", ".a", "a?b"])
    def test_names_that_mean_something_else(self, orders: Orders, workspace: Workspace, name: str) -> None:
        built = build_from_traces(orders.traces(orders.cancelling("A1", "one")), name)
        with pytest.raises(InputError, match="cannot be named"):
            save_environment(workspace.store, built)


class TestReferences:
    def test_the_desk_with_options(self, tmp_path: Path) -> None:
        plain, other = load_environment("desk"), load_environment("desk?seed=3&rename=get_alert:fetch_alert")
        assert plain.digest == load_environment("desk?seed=0").digest != other.digest
        names = {t.name for t in other.tools()}
        assert "fetch_alert" in names
        assert "get_alert" not in names

    @pytest.mark.parametrize(
        ("ref", "word"),
        [
            ("desk?sed=3", "did you mean 'seed'"),
            ("desk?seed=three", "whole number"),
            ("desk?seed=1&seed=2", "each option once"),
            ("desk?seed", "NAME?key=value"),
            ("desk?rename=get_alert", "rename=old:new"),
            ("desk?rename=no_tool:x", "tool"),
            ("desk?wording=/no/such/file.toml", "file"),
            ("?seed=1", "NAME"),
            ("nowhere", "flightschool.toml"),
            ("ws://127.0.0.1:9", "env import ws://127.0.0.1:9 --format mcp"),
        ],
    )
    def test_wrong_references(self, ref: str, word: str) -> None:
        with pytest.raises(FlightschoolError) as caught:
            load_environment(ref)
        assert caught.value.exit_code == 2
        assert word in str(caught.value)

    def test_unknown_names_and_options_of_kept_ones(self, workspace: Workspace) -> None:
        with pytest.raises(NotFoundError, match="env build --from-traces TRACES --name nowhere"):
            load_environment("nowhere", workspace)
        with pytest.raises(ConfigError, match="only built-in"):
            load_environment("nowhere?seed=1", workspace)


class TestTemplate:
    def test_the_files_of_a_new_workspace_run(self, tmp_path: Path) -> None:
        for name, text in init_files().items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        traces = import_traces(tmp_path / "traces/example.jsonl")
        with Workspace.find(tmp_path) as space:
            for code in (None, str(tmp_path / "tools.py")):
                state = None if code is None else tmp_path / "state"
                built = build_from_traces(traces, "my-agent", state=state, code=code)
                save_environment(space.store, built)
                environment = load_environment("my-agent", space)
                runner = EpisodeRunner(environment, OutcomeReward(RewardSettings()), run="t")
                attempts = run_attempts(runner, environment.tasks(), OraclePolicy(environment), seed=0)
                assert [a.reward.success for a in attempts if a.reward is not None] == [True] * 72
                assert built.fidelity.calls.value == 1.0

    def test_the_configuration_is_one_that_training_takes(self, tmp_path: Path) -> None:
        from flightschool.config import load_settings
        from flightschool.stations.settings import JobSettings

        path = tmp_path / "train.toml"
        text = init_files()["train.toml"]
        path.write_text(text)
        given = load_settings(path, JobSettings)
        assert given.environment.name == "my-agent"
        # every commented line is a key with its default
        lines = [
            line.removeprefix("# ") if line.startswith("# ") and " = " in line else line for line in text.splitlines()
        ]
        path.write_text("\n".join(lines))
        default = JobSettings().model_dump()
        for table, values in load_settings(path, JobSettings).model_dump().items():
            if isinstance(values, dict) and table != "environment":
                set_here = getattr(given, table).model_fields_set  # what fits the example
                for key in values.keys() - set_here:
                    assert values[key] == default[table][key], (table, key)
