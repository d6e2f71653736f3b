"""The generic engine: the contract, an architecture that our own engine does not know, and what is said of folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import transformers

from flightschool.cli import main
from flightschool.engines import LoadedModel, Transformer, get_model, load_model, save_model
from flightschool.engines.hf_engine import HfEngine
from flightschool.engines.hf_folders import load_hf_model
from flightschool.engines.onboarding import FolderCheck
from flightschool.engines.parity import check_parity, check_routing, hf_engine, hf_scores
from flightschool.errors import ModelFolderError
from flightschool.testing.engine_bench import ModelBench
from flightschool.testing.engine_contract import EngineContract

pytestmark = pytest.mark.integration


def made(seed: int) -> LoadedModel:
    """A small random model with the tokenizer of the shipped one."""
    tiny = load_model(get_model("tiny"))
    config = msgspec.structs.replace(
        tiny.config, hidden=32, intermediate=48, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
    )
    return LoadedModel(
        model=Transformer(config).initialise(seed, std=0.3),
        tokenizer=tiny.tokenizer,
        config=config,
        digest=f"made-{seed}",
        path=tiny.path,
    )


class TestHfEngine(EngineContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[ModelBench]:
        save_model(made(0), tmp_path / "model")
        engine = HfEngine(load_hf_model(tmp_path / "model"), run="contract", max_context=200)
        yield ModelBench(engine, {step: made(step) for step in (0, 1)}, lambda: engine.generated_tokens)
        await engine.aclose()


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts: no architecture of our own engine."""
    import torch

    folder = Path(shutil.copytree(get_model("tiny"), tmp_path_factory.mktemp("mixture") / "model"))
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=1024,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=512,
        eos_token_id=2,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


async def test_a_mixture_of_experts_is_sampled_exactly_and_its_routing_compared(mixture: Path) -> None:
    model = load_hf_model(mixture)
    assert (await check_parity(hf_engine(model), model.tokenizer, hf_scores(model))).passed
    routing: FolderCheck = check_routing(model, model.tokenizer)
    assert routing.passed
    assert routing.found.startswith("4 experts, 2 a token: ")
    num_same, num_all = routing.found.split(": ")[1].split(" choices")[0].split(" of ")
    assert num_same == num_all
    assert int(num_all) > 40


def test_models_check_takes_the_generic_engine_for_it(mixture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "check", str(mixture), "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["engine"], reply["model_type"], reply["exact"]) == ("hf", "qwen3_moe", True)
    assert reply["trainer"] == "generic trainer"
    assert reply["output_head"].startswith("logits by the model's own code")


def test_folders_that_transformers_cannot_load_are_named(mixture: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(mixture, tmp_path / "model"))
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(table | {"model_type": "made_up"}))
    with pytest.raises(ModelFolderError, match="transformers cannot load this folder"):
        load_hf_model(folder)


@pytest.mark.parametrize("changes", [{"hidden_size": "abc"}, {"rope_parameters": "linear"}, {"eos_token_id": "x"}])
def test_a_configuration_that_transformers_cannot_read_is_one_error(tmp_path: Path, changes: dict[str, str]) -> None:
    folder = Path(shutil.copytree(get_model("tiny"), tmp_path / "model"))
    table = json.loads((folder / "config.json").read_text()) | {"model_type": "mistral"} | changes
    (folder / "config.json").write_text(json.dumps(table))
    with pytest.raises(ModelFolderError, match=f"cannot load this folder: .*'{next(iter(changes))}'"):
        load_hf_model(folder)
