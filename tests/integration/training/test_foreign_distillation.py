"""Whole runs towards a teacher on models that only transformers knows: the distance falls by two measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.foreign import foreign_folder
from tests.integration.training.test_engines import run
from torch import Tensor

from flightschool.engines import EngineSettings, load_hf_model
from flightschool.engines.hf_folders import save_hf_model
from flightschool.engines.scoring import TeacherSettings
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, read_journal
from flightschool.training.teaching import ScoredPath, scored_paths

pytestmark = pytest.mark.integration


def moved(folder: Path, target: Path) -> Path:
    """A folder's weights, pushed off their place: a teacher that its student can reach."""
    loaded = load_hf_model(folder)
    chance = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=chance))
    save_hf_model(loaded, target)
    return target


def sampled_paths(run_dir: Path) -> list[ScoredPath]:
    """The sequences of the first eight groups of a run."""
    groups = [entry.group for entry in read_journal(RunFolder(run_dir).journal) if isinstance(entry, Finished)]
    return [path for group in groups[:8] for member in group.members for path in scored_paths(member)]


def distance(student: Path, teacher: Path, paths: list[ScoredPath]) -> float:
    """KL(student ‖ teacher) of the next token in nats, over whole distributions: the mean over sampled places."""
    models = [load_hf_model(folder).model for folder in (student, teacher)]
    values: list[Tensor] = []
    for path in paths:
        tokens_1T = torch.tensor([path.token_ids_T])
        with torch.no_grad():
            own_TV, other_TV = (torch.log_softmax(model(input_ids=tokens_1T).logits[0], dim=-1) for model in models)
        places = [place - 1 for _, first, end in path.places for place in range(first, end)]
        values.append((own_TV.exp() * (own_TV - other_TV)).sum(dim=-1)[places])
    return float(torch.cat(values).mean())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {}),
        ("gpt2", {"lora_rank": 4, "learning_rate": 1e-2}),
        ("opt", {"gradient_checkpointing": True}),
        pytest.param("gpt_neox", {"separate_process": True, "mode": "async"}, marks=pytest.mark.long),
    ],
)
def test_a_foreign_policy_comes_nearer_to_its_teacher(
    tiny_folder: Path, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    start = foreign_folder(name, tiny_folder, tmp_path / "start")
    teacher = moved(start, tmp_path / "teacher")
    fields = {"algorithm": "distill", "num_steps": 16, "groups_per_step": 4, "max_new_tokens": 8, **settings}
    result, rows = run(
        tmp_path / "run", start, EngineSettings(kind="hf"), teacher=TeacherSettings(model=str(teacher)), **fields
    )
    assert len(rows) == 16
    assert not any(row.skipped for row in rows)
    assert all(row.num_teacher_tokens >= row.stats.num_trained_tokens > 0 for row in rows)
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)
    first, last = (sum(row.teacher_kl for row in part) / len(part) for part in (rows[:2], rows[-4:]))
    paths = sampled_paths(tmp_path / "run")
    before, after = distance(start, teacher, paths), distance(Path(result.model), teacher, paths)
    assert first == pytest.approx(before, rel=0.3), "the figure of the run is an estimate of this divergence"
    assert 0.0 < last < 0.85 * first
    assert after < 0.8 * before
