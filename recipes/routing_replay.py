"""What replaying the experts of generation takes out of the mismatch, on a tiny GLM-4.5-type model of random weights.

Run from the repository root; half a minute on one core::

    python recipes/routing_replay.py

For each seed the engine samples sixteen conversations of two turns and keeps the experts of every token, prompts
included; the trainer then scores the very same tokens twice, once with those experts and once with its own choice. With
engine and trainer both in float32 the experts agree anyway. With the engine in bf16, as servers run, a token near the
border between two experts meets another one in the trainer, and its log-probability jumps.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import torch

from flightschool.engines import (
    ChatTokenizer,
    LoadedModel,
    TorchEngine,
    Transformer,
    TransformerConfig,
    load_model,
    save_model,
)
from flightschool.records import Message, TokenSpan
from flightschool.rollouts import EpisodeEndError, Sampling
from flightschool.rollouts.session import Session
from flightschool.training.folders import BlobFolder, RunFolder
from flightschool.training.messages import StepStats, TrainerSpec, TrainGroup, TrainMember
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer import TorchTrainer

NUM_ATTEMPTS = 16
MAX_CONTEXT = 128


def make_model(folder: Path, tokenizer: ChatTokenizer, seed: int) -> None:
    """A model folder of GLM-4.5's type: eight routed experts, two a token, one shared; the first layer is dense."""
    config = TransformerConfig(
        model_type="glm4_moe",
        vocab=tokenizer.num_ids,
        hidden=32,
        intermediate=48,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rotary_share=0.5,
        attention_bias=True,
        qk_norm=True,
        tied_embeddings=False,
        num_experts=8,
        experts_per_token=2,
        expert_intermediate=16,
        num_shared_experts=1,
        num_dense_layers=1,
        routed_scaling=1.5,
        eos_token_ids=tokenizer.stop_token_ids,
        max_context=MAX_CONTEXT,
    )
    model = Transformer(config).initialise(seed=seed, std=0.2)
    draw = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        if name.endswith(("e_score_correction_bias", "_proj.bias")):
            parameter.data = torch.randn(parameter.shape, generator=draw) * 0.1
    save_model(model, folder, tokenizer=tokenizer)


async def sampled(loaded: LoadedModel, run_dir: Path, seed: int) -> TrainGroup:
    """Conversations of two turns, as a run would keep them."""
    engine = TorchEngine(loaded, max_context=MAX_CONTEXT)
    keep = BlobFolder(RunFolder(run_dir).routing).put

    async def attempt(index: int) -> tuple[TokenSpan, ...]:
        sampling = Sampling(max_new_tokens=12)
        session = Session(str(index), engine, loaded.tokenizer, sampling, 1000 * seed + 10 * index, keep)
        messages = [Message(role="user", content="find the owner")]
        for said in ("and the backup", ""):
            try:
                reply = await session.complete(messages, ())
            except EpisodeEndError:  # cut at the limit of tokens, as random weights mostly are
                text = loaded.tokenizer.decode(session.spans()[-1].token_ids_T)
                reply = Message(role="assistant", content=text)
            messages += [reply, Message(role="user", content=said)]
        return session.spans()

    spans = await asyncio.gather(*(attempt(index) for index in range(NUM_ATTEMPTS)))
    engine.close()
    members = tuple(
        TrainMember(attempt=f"a{index}", advantage=1.0 if index % 2 else -1.0, spans=rows)
        for index, rows in enumerate(spans)
    )
    return TrainGroup(id="g", members=members)


def scored(folder: Path, run_dir: Path, group: TrainGroup, *, replay: bool) -> StepStats:
    """What the trainer, in float32, measures of the group's tokens."""
    settings = TrainingSettings(
        routing_replay=replay, mismatch_floor=10.0, max_new_tokens=12, max_context=MAX_CONTEXT, learning_rate=1e-3
    )
    spec = TrainerSpec(
        run="r",
        incarnation=0,
        step=0,
        model=str(folder),
        checkpoint="",
        run_dir=str(run_dir),
        weights="",
        settings=settings.model_dump_json(),
    )
    trainer = TorchTrainer(spec)
    trainer.accumulate(group)
    return trainer.step().stats


def main(num_seeds: int) -> None:
    """Print one row a seed and type of the engine."""
    out = sys.stdout
    out.write("| engine | seed | k3, replayed / own | largest difference | ESS | replayed share |\n")
    out.write("|---|---|---|---|---|---|\n")
    tokenizer = ChatTokenizer.from_folder(Path(str(files("flightschool.engines") / "tiny")))
    for dtype in (torch.bfloat16, torch.float32):
        for seed in range(num_seeds):
            with tempfile.TemporaryDirectory() as root:
                folder, run_dir = Path(root) / "model", Path(root) / "run"
                make_model(folder, tokenizer, seed)
                group = asyncio.run(sampled(load_model(folder, dtype=dtype), run_dir, seed))
                ours, own = (scored(folder, run_dir, group, replay=replay) for replay in (True, False))
                name = str(dtype).removeprefix("torch.")
                out.write(
                    f"| {name} | {seed} | {ours.k3:.2g} / {own.k3:.2g} | {ours.max_abs_mismatch:.2g} / "
                    f"{own.max_abs_mismatch:.2g} | {ours.ess:.4f} / {own.ess:.4f} | {ours.replayed_share:.2f} |\n"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many random models")
    main(parser.parse_args().seeds)
