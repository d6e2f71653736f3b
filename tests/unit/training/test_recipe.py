"""The recipe computes what the package computes: one recorded batch, both algorithms, losses and updated weights."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from flightschool.engines import load_model
from flightschool.records import EpisodeGroup, SpanKind, TokenSpan, VersionRun
from flightschool.training import ALGORITHMS, TermWeights, TrainingSettings
from flightschool.training.messages import TrainerSpec, TrainGroup, TrainMember
from flightschool.training.trainer import TorchTrainer

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rl_in_one_file", ROOT / "recipes" / "rl_in_one_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def batch(make_group: Callable[..., EpisodeGroup]) -> list[EpisodeGroup]:
    """Three groups: one with a gradient, one with an infra failure and temperatures, one that says nothing."""
    generator = torch.Generator().manual_seed(5)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 300, (count,), generator=generator).tolist())

    def spans(prompt: Sequence[int], index: int, temperature: float) -> tuple[TokenSpan, ...]:
        rows = [TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=tuple(prompt))]
        for turn in range(2):
            count = 3 + index + turn
            logprobs = tuple((-5.7 + torch.randn(count, generator=generator)).clamp(max=-0.1).tolist())
            rows.append(
                TokenSpan(
                    id=len(rows),
                    parent=len(rows) - 1,
                    kind=SpanKind.COMPLETION,
                    token_ids_T=tokens(count),
                    logprobs_T=logprobs,
                    versions=(VersionRun(step=0, count=count),),
                    temperature=temperature,
                )
            )
            rows.append(TokenSpan(id=len(rows), parent=len(rows) - 1, kind=SpanKind.OBSERVATION, token_ids_T=tokens(4)))
        return tuple(rows)

    groups = []
    all_rewards: list[list[float | None]] = [[1.0, 0.0, 0.5], [0.0, None, 1.0], [1.0, 1.0]]
    for number, rewards in enumerate(all_rewards):
        prompt = tokens(9)
        members = [spans(prompt, index, 0.8 if number == 1 else 1.0) for index in range(len(rewards))]
        groups.append(make_group(rewards, members, name=f"g{number}"))
    return groups


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo"])
def test_recipe_and_package_agree(
    recipe: ModuleType, make_group: Callable[..., EpisodeGroup], tiny_folder: Path, tmp_path: Path, algorithm: str
) -> None:
    groups = batch(make_group)
    settings = TrainingSettings(algorithm=algorithm, learning_rate=1e-3, max_new_tokens=16)  # type: ignore[arg-type]
    package = TorchTrainer(
        TrainerSpec(
            run="r",
            incarnation=0,
            step=0,
            model=str(tiny_folder),
            run_dir=str(tmp_path),
            weights="",
            settings=settings.model_dump_json(),
        )
    )
    weights = TermWeights(process=settings.process_weight, latency=settings.latency_weight)
    for group in groups:
        found = {c.attempt: c.advantage for c in ALGORITHMS[algorithm].credits(group, weights).credits}
        assert found == pytest.approx(recipe.advantages_of(group, algorithm))
        if found:
            members = tuple(
                TrainMember(attempt=m.id, advantage=found[m.id], spans=m.spans) for m in group.members if m.id in found
            )
            package.accumulate(TrainGroup(id=group.id, members=members))
    stats = package.step().stats

    model = load_model(tiny_folder).model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    loss, norm = recipe.train_step(model, optimizer, groups, algorithm, 16)
    assert loss == pytest.approx(stats.loss, abs=1e-5)
    assert norm == pytest.approx(stats.grad_norm, rel=1e-4)
    for (name, mine), theirs in zip(package.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-3, msg=name)
