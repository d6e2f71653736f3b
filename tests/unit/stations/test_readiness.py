"""What cannot work is told before a model is fetched, an environment is built or anything is measured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flightschool.config import parse_settings
from flightschool.engines import ChatTokenizer
from flightschool.engines.catalogue import tiny_folder
from flightschool.environments import environment_names
from flightschool.errors import ConfigError, ModelFolderError
from flightschool.pipeline import run_job
from flightschool.records import SpanKind
from flightschool.rollouts import EnginePolicy, EpisodeRunner, Sampling, num_prompt_tokens, run_attempts
from flightschool.stations import JobSettings, Quiet, check_settings, require_room, require_strata
from flightschool.store import Workspace
from flightschool.testing.engines import ByteTokenizer, SpokenEngine
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

NO_ONE = "http://127.0.0.1:9"
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"harness": {"command": "/no/such/program"}}, "harness.command"),
    ({"faults": {"training": "hurricane"}}, "faults.training"),
    ({"faults": {"evaluation": "./hurricane.toml"}}, "faults.evaluation"),
    ({"training": {"separate_process": False}}, "training.separate_process"),
    ({"training": {"device": "cuda:77"}}, "training.device"),
    ({"engine": {"kind": "vllm", "url": NO_ONE, "key_env": "FLIGHTSCHOOL_NO_SUCH_KEY"}}, "engine.key_env"),
    (
        {
            "training": {"algorithm": "distill"},
            "evaluation": {"negative_control_steps": 0},
            "teacher": {"kind": "vllm", "url": NO_ONE, "key_env": "FLIGHTSCHOOL_NO_SUCH_KEY"},
        },
        "teacher.key_env",
    ),
]


def job(table: dict[str, Any]) -> JobSettings:
    return parse_settings(table, JobSettings, where="train.toml")


@pytest.mark.parametrize(("table", "where"), BROKEN, ids=[where for _, where in BROKEN])
def test_settings_are_refused_without_a_model(table: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_settings(job(table))
    assert where in raised.value.where
    assert raised.value.mend


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_job_without_its_server_makes_nothing(tmp_path: Path, kind: str) -> None:
    with (
        Workspace.create(tmp_path / "space") as space,
        pytest.raises(ConfigError, match=r"no .* server is ready") as raised,
    ):
        fly(space, job({"engine": {"kind": kind, "url": NO_ONE}}), tiny_folder(), tmp_path)
    assert raised.value.where == "engine.url"
    assert raised.value.exit_code == 2


def test_a_job_whose_weights_are_cut_makes_nothing(tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_folder(), tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])
    with Workspace.create(tmp_path / "space") as space:
        with pytest.raises(ModelFolderError, match="its header tells of"):
            fly(space, job({}), model, tmp_path)
        assert environment_names(space.store) == ()


def fly(space: Workspace, settings: JobSettings, model: Path, folder: Path) -> None:
    run_job(space, settings, model, Quiet(), job="job", out=folder / "report.html", commands=())


def test_prompts_that_never_fit_are_refused_with_the_shortest() -> None:
    environment, model = MiniatureEnvironment(), tiny_folder()
    tasks, tokenizer = environment.tasks(), ChatTokenizer.from_folder(tiny_folder())
    lengths = {task.id: num_prompt_tokens(environment, task, tokenizer) for task in tasks if task.stratum == "copy"}
    shortest = min(lengths.values())

    def settings(max_context: int, **tables: Any) -> JobSettings:
        room = {"max_context": max_context, "max_new_tokens": 8}
        return job({"training": room, "suite": {"trained": ["copy"]}, **tables})

    with pytest.raises(ConfigError, match=f"every prompt is longer than a context of {shortest} tokens") as raised:
        require_room(environment, model, settings(shortest))
    assert raised.value.where == "training.max_context"
    require_room(environment, model, settings(shortest + 1))
    require_room(environment, model, settings(shortest, harness={"command": "true"}))  # its prompts are its own


def test_a_prompt_is_measured_as_a_session_renders_it() -> None:
    environment, tokenizer = MiniatureEnvironment(), ByteTokenizer()
    runner = EpisodeRunner(environment, OutcomeReward(), run="r")
    for task in environment.tasks()[:2]:
        policy = EnginePolicy(SpokenEngine(("done",), max_context=100_000), tokenizer, "spoken", Sampling())
        (attempt,) = run_attempts(runner, [task], policy, seed=0)
        (prompt,) = (span for span in attempt.spans if span.kind is SpanKind.PROMPT)
        assert num_prompt_tokens(environment, task, tokenizer) == len(prompt.token_ids_T)


def test_a_stratum_that_is_not_there_is_told_before_the_audit() -> None:
    environment = MiniatureEnvironment()
    require_strata(environment, job({"suite": {"trained": ["copy"]}}))
    with pytest.raises(ConfigError, match="has no stratum 'coppy'") as raised:
        require_strata(environment, job({"suite": {"trained": ["copy", "coppy"]}}))
    assert (raised.value.where, raised.value.mend) == ("suite.trained", "did you mean 'copy'?")
    assert "copy" in raised.value.expected


def test_a_job_with_an_unknown_stratum_audits_nothing(tmp_path: Path) -> None:
    class Heard(Quiet):
        stations: ClassVar[list[str]] = []

        def station(self, name: str) -> None:
            self.stations.append(name)

    settings = job({"environment": {"name": "desk"}, "suite": {"trained": ["no-such"]}})
    with Workspace.create(tmp_path / "space") as space, pytest.raises(ConfigError, match="no stratum 'no-such'"):
        run_job(space, settings, tiny_folder(), Heard(), job="j", out=tmp_path / "r.html", commands=())
    assert Heard.stations == ["traces → environment"]
