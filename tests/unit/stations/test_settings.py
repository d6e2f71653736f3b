"""The configuration of a job: embedded defaults are valid, wrong keys are told with the nearest right one."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from flightschool.config import load_settings, parse_settings
from flightschool.errors import ConfigError
from flightschool.rollouts import ToolCallingHarness
from flightschool.rollouts.gateway import ProgramHarness
from flightschool.stations import make_harness
from flightschool.stations.settings import HarnessTable, JobSettings
from flightschool.stations.training_station import control_settings, last_measurement_s, run_name, training_settings
from flightschool.testing.miniature import MiniatureEnvironment


def embedded(name: str) -> JobSettings:
    text = (files("flightschool.stations") / name).read_text(encoding="utf-8")
    return parse_settings(tomllib.loads(text), JobSettings, where=name)


@pytest.mark.parametrize("name", ["quickstart.toml", "offline.toml"])
def test_embedded_jobs_train_a_stratum_and_set_a_holdout_apart(name: str) -> None:
    settings = embedded(name)
    assert settings.suite.trained == ("two_step",)
    assert settings.suite.holdout_fraction > 0
    assert settings.screening.budget <= 256
    assert 0 < settings.training.noisy_share < 1


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text("[training]\nlearning_rat = 1e-5\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_settings(path, JobSettings)
    assert "learning_rat" in raised.value.what
    assert raised.value.where == str(path)
    assert "learning_rate" in raised.value.mend


def test_a_value_out_of_range_is_told_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text("[training]\ngroup_size = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"training\.group_size"):
        load_settings(path, JobSettings)


def test_weather_and_seed_of_the_job_reach_the_training() -> None:
    settings = embedded("quickstart.toml").model_copy(update={"seed": 5})
    assert training_settings(settings).seed == 5
    assert training_settings(settings).noise == settings.faults.training


def test_training_takes_the_time_that_the_other_stations_leave() -> None:
    settings = embedded("quickstart.toml").model_copy(update={"time_limit_s": 400.0})
    assert training_settings(settings, elapsed_s=80.0, still_s=52.0).time_limit_s == 400 - 80 - 52 - 20
    assert training_settings(settings, elapsed_s=390.0, still_s=52.0).time_limit_s == 30
    shorter = settings.training.model_copy(update={"time_limit_s": 5.0})
    assert training_settings(settings.model_copy(update={"training": shorter})).time_limit_s == 5
    unlimited = settings.model_copy(update={"time_limit_s": None})
    assert training_settings(unlimited, elapsed_s=80.0).time_limit_s is None


def test_the_last_measurement_is_guessed_from_a_model_that_acts() -> None:
    settings = embedded("quickstart.toml")
    assert last_measurement_s(settings, 40.0, None) == 1.3 * 40
    assert last_measurement_s(settings, 40.0, 30.0) == pytest.approx(2.4 * 30)
    greedy = settings.model_copy(update={"evaluation": settings.evaluation.model_copy(update={"greedy": True})})
    assert last_measurement_s(greedy, 40.0, 30.0) == pytest.approx(3.4 * 30)


def test_the_control_shuffles_rewards_and_is_shorter() -> None:
    settings = embedded("quickstart.toml")
    evaluation = settings.evaluation.model_copy(update={"negative_control_steps": 3})
    control = control_settings(settings.model_copy(update={"evaluation": evaluation}))
    assert control.shuffle_rewards
    assert control.num_steps == 3


def test_run_names_follow_from_the_settings(tmp_path: Path) -> None:
    environment, settings = MiniatureEnvironment(), embedded("quickstart.toml")
    name = run_name("job", settings, environment, tmp_path)
    assert name == run_name("job", settings, environment, tmp_path)
    assert name != run_name("job", settings.model_copy(update={"seed": 1}), environment, tmp_path)
    assert name != run_name("job", settings, environment, tmp_path / "other")


def test_a_harness_is_built_in_or_a_program_given_as_text_or_as_words(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    assert isinstance(make_harness(JobSettings().harness), ToolCallingHarness)
    path.write_text("[harness]\ncommand = \"python3 agent.py --name 'two words'\"\ntimeout_s = 5\n", encoding="utf-8")
    settings = load_settings(path, JobSettings)
    assert settings.harness.command == ("python3", "agent.py", "--name", "two words")
    assert isinstance(make_harness(settings.harness), ProgramHarness)
    path.write_text('[harness]\ncommand = ["python3", "agent.py"]\n', encoding="utf-8")
    assert load_settings(path, JobSettings).harness.command == ("python3", "agent.py")
    assert JobSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize("command", ['""', "[]", "[5]", '"unclosed \'"'])
def test_a_command_that_is_none_is_told_with_its_key(tmp_path: Path, command: str) -> None:
    path = tmp_path / "train.toml"
    path.write_text(f"[harness]\ncommand = {command}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"harness\.command"):
        load_settings(path, JobSettings)


def test_a_program_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no-such-program"):
        make_harness(HarnessTable(command=("no-such-program-anywhere",)))


def test_a_program_is_looked_for_from_its_folder(tmp_path: Path) -> None:
    program = tmp_path / "agents" / "run"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    assert isinstance(make_harness(HarnessTable(command=("./run",), directory=program.parent)), ProgramHarness)
    with pytest.raises(ConfigError, match=r"no program '\./run'"):
        make_harness(HarnessTable(command=("./run",), directory=tmp_path))
    with pytest.raises(ConfigError, match=r"the program's folder is not there"):
        make_harness(HarnessTable(command=("./run",), directory=tmp_path / "nowhere"))


def test_credit_by_turn_and_a_program_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text('[harness]\ncommand = "python3"\n[training]\nturn_weight = 0.1\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="turn_weight"):
        load_settings(path, JobSettings)


def test_a_weight_on_a_budget_that_nobody_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward\.thinking_budget"):
        parse_settings({"training": {"thinking_weight": 0.25}}, JobSettings, where="train.toml")
    table = {"training": {"thinking_weight": 0.25}, "reward": {"thinking_budget": 40}}
    assert parse_settings(table, JobSettings, where="train.toml").reward.thinking_budget == 40
