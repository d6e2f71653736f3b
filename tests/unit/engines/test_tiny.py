"""The model that ships with the package: small, complete, and of use on the desk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.engines import ChatTokenizer, LoadedModel, TorchEngine, get_model, load_model
from flightschool.environments.desk import build_environment
from flightschool.protocols import GenerationRequest
from flightschool.rollouts import EnginePolicy, EpisodeRunner, Sampling, run_attempts
from flightschool.verification import OutcomeReward, RewardSettings

MOST_BYTES = 4_000_000
MOST_PARAMETERS = 1_000_000
TOKENIZER = ChatTokenizer.from_folder(get_model("tiny"))


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model(get_model("tiny"))


def test_it_ships_with_the_package_and_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", str(tmp_path / "cache"))
    folder = get_model("tiny")
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    assert not (tmp_path / "cache").exists()
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"


def test_it_has_below_a_million_parameters(tiny: LoadedModel) -> None:
    assert sum(parameter.numel() for parameter in tiny.model.parameters()) <= MOST_PARAMETERS
    assert all(bool(parameter.isfinite().all()) for parameter in tiny.model.parameters())
    assert tiny.config.max_context >= 1024


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_digits_and_names_are_tokens_of_their_own(tiny: LoadedModel) -> None:
    tokenizer = tiny.tokenizer
    assert len(tokenizer.encode("2026")) == 4
    name = tokenizer.encode("Tina")
    for text in ('{"technician": "Tina"}', "give it to Tina."):
        tokens = tokenizer.encode(text)
        assert any(tokens[start : start + len(name)] == name for start in range(len(tokens)))


async def test_what_it_samples_is_scored_alike_by_a_plain_pass(tiny: LoadedModel) -> None:
    from flightschool.engines import CausalAttention

    prompt = (*tiny.tokenizer.turn("user", "Assign order W34."), *tiny.tokenizer.open_assistant())
    engine = TorchEngine(tiny)
    request = GenerationRequest(session="s", token_ids_T=prompt, max_new_tokens=12, stop_token_ids=(), seed=1)
    sampled = await engine.generate(request)
    tokens_N = torch.tensor(prompt + sampled.token_ids_T)
    with torch.inference_mode():
        hidden_ND = tiny.model(tokens_N, torch.arange(len(tokens_N)), CausalAttention([len(tokens_N)]))
        plain_TV = torch.log_softmax(tiny.model.logits(hidden_ND[len(prompt) - 1 : -1]), dim=-1)
    plain_T = plain_TV.gather(1, tokens_N[len(prompt) :, None])[:, 0]
    torch.testing.assert_close(plain_T, torch.tensor(sampled.logprobs_T), atol=1e-5, rtol=0.0)


def test_it_speaks_in_calls_to_the_tools_that_it_is_shown(tiny: LoadedModel) -> None:
    desk = build_environment(seed=0)
    tasks = [task for task in desk.tasks() if task.stratum == "two_step"][::12]
    policy = EnginePolicy(TorchEngine(tiny), tiny.tokenizer, "tiny", Sampling(temperature=0.0, max_new_tokens=40))
    attempts = run_attempts(EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="t"), tasks, policy, seed=0)
    firsts = [
        next(message for message in a.messages[len(t.example) + 2 :]) for t, a in zip(tasks, attempts, strict=True)
    ]
    right = [
        bool(first.tool_calls) and first.tool_calls[0].name in task.tools
        for first, task in zip(firsts, tasks, strict=True)
    ]
    assert sum(right) >= 0.8 * len(right)
