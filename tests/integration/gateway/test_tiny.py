"""The proof: a plain script, the shipped model on the desk, tokens as the engine sampled them, and a training on it."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from flightschool.config import parse_settings
from flightschool.engines import LoadedModel, TorchEngine, get_model, load_model
from flightschool.environments.desk import build_environment
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import SpanKind
from flightschool.rollouts import EnginePolicy, EpisodeRunner, Sampling, run_attempts
from flightschool.rollouts.gateway import ProgramHarness
from flightschool.stations import JobSettings, make_harness
from flightschool.training import PoolSource, train
from flightschool.verification import OutcomeReward, RewardSettings

pytestmark = pytest.mark.integration
AGENT = Path(__file__).with_name("agent.py")
HAS_SDK = importlib.util.find_spec("openai") is not None
WAYS = ["urllib", *(["sdk", "stream"] if HAS_SDK else [])]


class WatchedEngine(TorchEngine):
    """The engine itself, with a book of what went in and came out."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded)
        self.book: list[tuple[GenerationRequest, Generation]] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        generation = await super().generate(request)
        self.book.append((request, generation))
        return generation


@pytest.mark.parametrize("way", WAYS)
def test_spans_are_what_the_engine_sampled(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    monkeypatch.setenv("AGENT_LOG", str(log))
    desk = build_environment(seed=0)
    loaded = load_model(get_model("tiny"))
    engine = WatchedEngine(loaded)
    policy = EnginePolicy(engine, loaded.tokenizer, "tiny", Sampling(max_new_tokens=40))
    tasks = [task for task in desk.tasks() if task.stratum == "two_step"][:2]
    harness = ProgramHarness([sys.executable, str(AGENT), way], timeout_s=120.0)
    runner = EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="r", harness=harness)
    attempts = run_attempts(runner, tasks, policy, seed=0)

    sampled = Counter((g.token_ids_T, g.logprobs_T, r.token_ids_T) for r, g in engine.book)
    written: Counter[tuple[object, ...]] = Counter()
    for attempt in attempts:
        assert attempt.reward is not None, attempt.detail
        by_id = {span.id: span for span in attempt.spans}
        assert attempt.spans
        for span in attempt.spans:
            if span.kind is SpanKind.COMPLETION:
                context: tuple[int, ...] = ()
                above = span.parent
                while above is not None:
                    context = by_id[above].token_ids_T + context
                    above = by_id[above].parent
                written[span.token_ids_T, span.logprobs_T, context] += 1
        roots = [span for span in attempt.spans if span.parent is None]
        assert len(roots) == 1, "every turn went on where the last one ended"
    assert written == sampled
    if way == "stream":
        return
    shown = [json.loads(row)["choices"][0] for row in log.read_text().splitlines()]
    told = Counter((tuple(c["token_ids"]), tuple(c["token_logprobs"])) for c in shown)
    assert told == Counter((g.token_ids_T, g.logprobs_T) for _, g in engine.book)
    assert all(set(c["token_versions"]) == {0} for c in shown)


@pytest.mark.slow
def test_a_plain_script_is_trained_for_a_few_steps_by_configuration(tmp_path: Path) -> None:
    table = {
        "harness": {"command": [sys.executable, str(AGENT)], "timeout_s": 120},
        "training": {
            "num_steps": 2,
            "group_size": 4,
            "groups_per_step": 1,
            "max_inflight_groups": 2,
            "max_new_tokens": 40,
            "learning_rate": 1e-3,
        },
    }
    settings = parse_settings(table, JobSettings, where="train.toml")
    desk = build_environment(seed=0)
    tasks = [task for task in desk.tasks() if task.stratum == "two_step"][:4]
    harness = make_harness(settings.harness)
    runner = EpisodeRunner(desk, OutcomeReward(settings.reward), run="run", harness=harness)
    start = get_model("tiny")
    result = train(
        settings.training,
        model=start,
        run_dir=tmp_path / "run",
        source=PoolSource(tasks),
        runner=runner,
        unaudited="a test",
    )
    assert result.manifest.step == 2
    before, after = (load_model(folder).model.state_dict() for folder in (start, Path(result.model)))
    assert any(not torch.equal(before[name], after[name]) for name in before)
