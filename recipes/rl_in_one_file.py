"""The whole training in one file: the algorithm without the machinery.

    python recipes/rl_in_one_file.py --model smollm2-135m --steps 12

Same model, environment, reward and losses as ``flightschool train``; none of its speed, asynchrony or safety. Episodes
are generated for a step, then the step is made: every attempt is one padded row through the model, with logits of all
its tokens. A test shows that the losses equal the package's on one recorded batch.

What is left out, and where it lives: one pass for a shared prompt (``training/shared_prefix.py``), generation while the
trainer works, and its staleness (``training/queue.py``), resuming (``training/journal.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flightschool.engines import CausalAttention, TorchEngine, Transformer, get_model, load_model, save_model
from flightschool.environments import load_environment
from flightschool.records import Attempt, EpisodeGroup, SpanKind, WeightsVersion
from flightschool.rollouts import EnginePolicy, EpisodeRunner, Sampling
from flightschool.verification import OutcomeReward

PROCESS_WEIGHT = 0.1
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TIS_CAP = 2.0
MAX_GRAD_NORM = 1.0


# ------------------------------------------------------------------------------------------------ advantages


def advantages_of(group: EpisodeGroup, algorithm: str) -> dict[str, float]:
    """Advantage by attempt; empty if the group says nothing.

    Infra failures (reward None) are not compared. Equal scores mean no gradient.
    """
    scored = {
        m.id: m.reward.gate * (m.reward.outcome + PROCESS_WEIGHT * m.reward.process) for m in group.members if m.reward
    }
    scores = list(scored.values())
    if len(scores) < 2 or max(scores) - min(scores) < 1e-9:
        return {}
    mean = statistics.fmean(scores)
    scale = statistics.stdev(scores) + 1e-6 if algorithm == "grpo" else 1.0
    return {attempt: (score - mean) / scale for attempt, score in scored.items()}


# ------------------------------------------------------------------------------------------------ tokens


@dataclass
class Row:
    """One attempt as one sequence."""

    tokens: list[int]
    trained: list[bool]
    """Whether the token was sampled by the policy."""
    behaviour: list[float]
    """Its log-probability when it was sampled; 0 where nothing trains."""
    temperature: float
    advantage: float


def row_of(attempt: Attempt, advantage: float) -> Row:
    """Lay the spans of a conversation end to end. (Branches and edited histories need the package.)"""
    row = Row([], [], [], 1.0, advantage)
    for parent, span in enumerate(attempt.spans, start=-1):
        assert span.parent == (None if parent < 0 else parent), "a conversation without branches"
        sampled = span.kind is SpanKind.COMPLETION
        row.tokens += span.token_ids_T
        row.trained += [sampled] * len(span.token_ids_T)
        row.behaviour += span.logprobs_T if sampled else [0.0] * len(span.token_ids_T)
        row.temperature = span.temperature if sampled else row.temperature
    return row


def padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, mask, behaviour log-probabilities ``[B, T]``; temperatures and advantages ``[B, 1]``."""
    longest = max(len(row.tokens) for row in rows)
    tokens_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    trained_BT = torch.zeros(len(rows), longest, dtype=torch.bool)
    behaviour_BT = torch.zeros(len(rows), longest)
    for b, row in enumerate(rows):
        tokens_BT[b, : len(row.tokens)] = torch.tensor(row.tokens)
        trained_BT[b, : len(row.tokens)] = torch.tensor(row.trained)
        behaviour_BT[b, : len(row.tokens)] = torch.tensor(row.behaviour)
    temperatures_B1 = torch.tensor([[row.temperature] for row in rows])
    advantages_B1 = torch.tensor([[row.advantage] for row in rows])
    return tokens_BT, trained_BT, behaviour_BT, temperatures_B1, advantages_B1


# ------------------------------------------------------------------------------------------------ loss


def loss_of(model: Transformer, rows: Sequence[Row]) -> tuple[Tensor, int]:
    """Summed loss of the rows, and how many tokens trained."""
    tokens_BT, trained_BT, behaviour_BT, temperatures_B1, advantages_B1 = padded(rows)
    num_rows, longest = tokens_BT.shape
    positions_N = torch.arange(longest).repeat(num_rows)
    hidden_ND = model(tokens_BT.flatten(), positions_N, CausalAttention([longest] * num_rows))
    logits_BTV = model.logits(hidden_ND).view(num_rows, longest, -1)
    # The hidden state at t predicts the token at t + 1.
    logprobs_BTV = (logits_BTV[:, :-1] / temperatures_B1.unsqueeze(2)).log_softmax(dim=2)
    logprobs_BT = logprobs_BTV.gather(2, tokens_BT[:, 1:, None]).squeeze(2)
    trained_BT, behaviour_BT = trained_BT[:, 1:], behaviour_BT[:, 1:]

    old_BT = logprobs_BT.detach()  # one step a batch: the policy before the step is the policy itself
    weight_BT = (old_BT - behaviour_BT).exp().clamp(max=TIS_CAP)
    ratio_BT = (logprobs_BT - old_BT).exp()
    clipped_BT = ratio_BT.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    surrogate_BT = torch.minimum(ratio_BT * advantages_B1, clipped_BT * advantages_B1)
    return -(weight_BT * surrogate_BT)[trained_BT].sum(), int(trained_BT.sum())


def train_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[EpisodeGroup],
    algorithm: str,
    max_new_tokens: int,
) -> tuple[float, float]:
    """One optimizer step on finished groups; returns loss and gradient norm. Groups that say nothing are left out."""
    total, num_tokens, num_rows = 0.0, 0, 0
    optimizer.zero_grad()
    for group in groups:
        advantages = advantages_of(group, algorithm)
        rows = [row_of(member, advantages[member.id]) for member in group.members if member.id in advantages]
        if not rows:
            continue
        loss, count = loss_of(model, rows)
        torch.autograd.backward(loss)
        total, num_tokens, num_rows = total + float(loss.detach()), num_tokens + count, num_rows + len(rows)
    if num_rows == 0:
        return 0.0, 0.0
    denominator = num_tokens if algorithm == "grpo" else num_rows * max_new_tokens
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= denominator
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM))
    optimizer.step()
    return total / denominator, norm


# ------------------------------------------------------------------------------------------------ the loop


async def train(options: argparse.Namespace) -> None:
    """Generate, train, repeat."""
    torch.set_num_threads(options.threads)
    folder = Path(options.model) if "/" in options.model else get_model(options.model)
    trained, served = load_model(folder), load_model(folder)
    model = trained.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0)
    engine = TorchEngine(served, run="recipe")
    policy = EnginePolicy(engine, served.tokenizer, "recipe", Sampling(max_new_tokens=options.max_new_tokens))
    environment = load_environment("desk")
    runner = EpisodeRunner(environment, OutcomeReward(), run="recipe")
    tasks = [task for task in environment.tasks() if task.stratum in options.strata]
    chance = random.Random(options.seed)
    for step in range(options.steps):
        chosen = chance.sample(tasks, options.groups)
        jobs = [
            runner.group(task, policy, size=8, group=f"{step}-{i}", admitted_step=step, seed=1000 * step + i)
            for i, task in enumerate(chosen)
        ]
        groups = await asyncio.gather(*jobs)
        loss, norm = train_step(model, optimizer, groups, options.algorithm, options.max_new_tokens)
        version = WeightsVersion(run="recipe", incarnation=0, step=step + 1)
        engine.update_weights(version, dict(model.named_parameters()), keep_cache=False)
        rewards = [member.reward for group in groups for member in group.members if member.reward]
        success = statistics.fmean(reward.success for reward in rewards)
        print(f"step {step + 1:3d}  success {success:.2f}  loss {loss:+.4f}  gradient {norm:.2f}", flush=True)
    if options.out:
        save_model(trained, Path(options.out))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Reinforcement learning on the maintenance desk, in one file.")
    parser.add_argument("--model", default="smollm2-135m", help="name, or a path to a model folder")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--groups", type=int, default=4, help="groups of 8 attempts a step")
    parser.add_argument("--strata", nargs="+", default=["two_step"])
    parser.add_argument("--algorithm", choices=["grpo", "dr_grpo"], default="grpo")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="", help="folder to save the model in")
    asyncio.run(train(parser.parse_args()))


if __name__ == "__main__":
    main()
