"""Generation and the training pass beside the limits of the machine, in one process (``processes``)."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from flightschool.bench.training.limits import Limits, best_s, measure_limits
from flightschool.records import Record, SpanKind, TokenSpan, VersionRun

__all__ = ["Generated", "Kernels", "Passed", "measure_kernels"]

BATCH, GROUPS = 32, 4
PROMPT, NEW = 176, 48
MEMBERS, OWN = 8, 96
_REPEATS = 2


class Generated(Record, frozen=True, kw_only=True):
    """A batch of 32 completions of 48 tokens, four prompts of 176 tokens shared by eight each."""

    seconds: float
    limit_s: float
    tokens_per_s: float
    share_of_limit: float


class Passed(Record, frozen=True, kw_only=True):
    """Forward and backward of a group of eight: 176 shared tokens, 96 own ones each, all of these trained."""

    seconds: float
    tokens_per_s: float
    gflops: float
    """Operations of the tokens that are really computed, a shared prompt once, attention included."""
    share_of_peak: float


class Kernels(Record, frozen=True, kw_only=True):
    """All of it."""

    limits: Limits
    generation: Generated
    training: Passed


def measure_kernels(model: Path, num_threads: int) -> Kernels:
    """Measure; the limits first, in the same process."""
    from flightschool.engines import load_model

    loaded = load_model(model)
    limits = measure_limits(loaded.model, num_threads)
    return Kernels(
        limits=limits,
        generation=asyncio.run(_generate(model, limits)),
        training=_train(model, limits),
    )


async def _generate(model: Path, limits: Limits) -> Generated:
    from flightschool.engines import TorchEngine, load_model
    from flightschool.protocols import GenerationRequest

    loaded = load_model(model)
    engine = TorchEngine(loaded, num_threads=limits.num_threads, packed_weights=True)
    chance = random.Random(0)
    times = []
    for repeat in range(_REPEATS + 1):
        prompts = [_tokens(chance, loaded.config.vocab, PROMPT) for _ in range(GROUPS)]
        requests = [
            GenerationRequest(
                session=f"{repeat}-{row}",
                token_ids_T=prompts[row * GROUPS // BATCH],
                max_new_tokens=NEW,
                stop_token_ids=(),
                seed=row,
                prefix_length=PROMPT,
            )
            for row in range(BATCH)
        ]
        started = time.perf_counter()
        await asyncio.gather(*(engine.generate(request) for request in requests))
        times.append(time.perf_counter() - started)
        for request in requests:
            engine.release(request.session)
    await engine.aclose()
    seconds = min(times[1:])
    # The first token of each completion comes out of the pass that ends the prompts.
    cached = [GROUPS * PROMPT + BATCH * new for new in range(1, NEW)]
    limit = limits.prefill_s(GROUPS * (PROMPT - 1) + BATCH) + sum(limits.decode_s(BATCH, num) for num in cached)
    return Generated(seconds=seconds, limit_s=limit, tokens_per_s=BATCH * NEW / seconds, share_of_limit=limit / seconds)


def _train(model: Path, limits: Limits) -> Passed:
    from flightschool.engines import TransformerConfig
    from flightschool.engines.folders import read_json
    from flightschool.training import TrainingSettings
    from flightschool.training.messages import TrainerSpec, TrainGroup, TrainMember
    from flightschool.training.trainer import TorchTrainer

    settings = TrainingSettings(num_threads=limits.num_threads, max_new_tokens=OWN)
    spec = TrainerSpec(
        run="kernels",
        incarnation=0,
        step=0,
        model=str(model),
        run_dir=str(model),
        weights="",
        settings=settings.model_dump_json(),
    )
    trainer = TorchTrainer(spec)
    config = TransformerConfig.from_hf(read_json(model / "config.json"), where=str(model))
    chance = random.Random(0)
    prompt = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=_tokens(chance, config.vocab, PROMPT))
    members = tuple(
        TrainMember(
            attempt=str(place),
            advantage=1.0 if place % 2 else -1.0,
            spans=(prompt, _completion(chance, config.vocab)),
        )
        for place in range(MEMBERS)
    )
    group = TrainGroup(id="kernels", members=members)
    seconds = best_s(lambda: trainer.accumulate(group), rounds=_REPEATS, budget_s=60.0)
    num_forward = PROMPT + MEMBERS * (OWN - 1)
    looked_at = PROMPT * (PROMPT + 1) / 2 + MEMBERS * sum(PROMPT + place for place in range(1, OWN))
    attention = 12.0 * config.num_layers * config.num_heads * config.head_dim * looked_at
    products = 6.0 * (num_forward * limits.num_body + MEMBERS * OWN * limits.num_head)
    gflops = (products + attention) / seconds / 1e9
    return Passed(
        seconds=seconds,
        tokens_per_s=num_forward / seconds,
        gflops=gflops,
        share_of_peak=gflops / limits.peak_gflops,
    )


def _tokens(chance: random.Random, vocab: int, length: int) -> tuple[int, ...]:
    return tuple(chance.randrange(vocab) for _ in range(length))


def _completion(chance: random.Random, vocab: int) -> TokenSpan:
    return TokenSpan(
        id=1,
        parent=0,
        kind=SpanKind.COMPLETION,
        token_ids_T=_tokens(chance, vocab, OWN),
        logprobs_T=(-9.0,) * OWN,
        versions=(VersionRun(step=0, count=OWN),),
    )
