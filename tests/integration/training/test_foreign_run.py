"""Whole runs on models that only transformers knows: sampled by the generic engine, trained by the generic trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.foreign import foreign_folder
from tests.integration.training.test_engines import run

from flightschool.engines import EngineSettings, load_hf_model
from flightschool.engines.parity import check_parity, hf_engine, hf_scores
from flightschool.errors import NotFoundError
from flightschool.training.model_export import export_model

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {}),
        ("gpt2", {"lora_rank": 2, "learning_rate": 3e-2}),
        ("gpt2", {"dtype": "bfloat16", "mismatch_floor": 10.0}),
        ("opt", {"kl_weight": 0.1}),
        pytest.param("gpt_neox", {"separate_process": True, "mode": "async"}, marks=pytest.mark.long),
        ("mamba", {"gradient_checkpointing": True}),
    ],
)
def test_a_foreign_model_is_sampled_trained_and_exported(
    tiny_folder: Path, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    folder = foreign_folder(name, tiny_folder, tmp_path / "start")
    fields = {"num_steps": 2, "checkpoint_every": 1, **settings}
    result, rows = run(tmp_path / "run", folder, EngineSettings(kind="hf"), **fields)
    assert [row.step for row in rows] == [1, 2]
    assert not any(row.skipped for row in rows)
    if "dtype" not in settings:  # what trains is what was sampled
        assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)
    export_model(tmp_path / "run", tmp_path / "final")
    export_model(tmp_path / "run", tmp_path / "kept", step=1)
    dtype = torch.bfloat16 if "dtype" in settings else torch.float32
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
        for path in (folder, Path(result.model), tmp_path / "final", tmp_path / "kept")
    ]
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        start, *others = (model(input_ids=tokens).logits for model in models)
    assert not torch.equal(start, others[0])
    assert torch.equal(others[0], others[1])
    assert not torch.equal(start, others[2])  # a step of two
    assert not torch.equal(others[0], others[2])
    assert load_hf_model(result.model).digest == result.model_digest
    with pytest.raises(NotFoundError):
        export_model(tmp_path / "run", tmp_path / "none", step=7)


@pytest.mark.parametrize("name", ["gpt2", "opt", "bloom", "gemma2", "mamba"])
async def test_what_the_generic_engine_samples_is_what_a_plain_pass_says(
    tiny_folder: Path, tmp_path: Path, name: str
) -> None:
    model = load_hf_model(foreign_folder(name, tiny_folder, tmp_path / "model"))
    found = await check_parity(hf_engine(model), model.tokenizer, hf_scores(model))
    assert found.passed, found.found


def test_a_grammar_holds_for_a_foreign_model(tiny_folder: Path, tmp_path: Path) -> None:
    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "start")
    engine = EngineSettings(kind="hf", constrain_calls=True)
    _, rows = run(tmp_path / "run", folder, engine, num_steps=2, max_new_tokens=24)
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)  # renormalised over the same support
