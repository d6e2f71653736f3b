"""Pieces of a completion put together: what they say about the cache under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from flightschool.engines.folders import LoadedModel
from flightschool.engines.requests import continuation, joined
from flightschool.engines.torch_engine import TorchEngine
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun, WeightsVersion


def piece(steps: Sequence[int], kv_step: int) -> Generation:
    runs = tuple(VersionRun(step=step, count=1) for step in steps)
    return Generation(
        token_ids_T=(7,) * len(runs), logprobs_T=(-1.0,) * len(runs), versions=runs, kv_step=kv_step, finish="stop"
    )


@pytest.mark.parametrize(
    ("first", "rest", "kv_step"),
    [
        (piece([0, 1], 0), piece([1], 1), 0),  # evicted in between: tokens of step 1 stand over both caches
        (piece([0], 0), piece([1], 1), 1),  # computed anew when the weights came: all of step 1 is exact
        (piece([0, 1], 0), piece([2], 2), 2),
        (piece([0, 1], 0), piece([1, 2], 1), 0),  # a run of step 1 that is of both caches: said as the older
        (piece([], 3), piece([1], 1), 1),
        (piece([1], 0), piece([], 2), 0),
        (piece([], 1), piece([], 2), 2),
    ],
)
def test_the_bound_of_the_cache_holds_for_all_tokens_of_the_newest_weights(
    first: Generation, rest: Generation, kv_step: int
) -> None:
    assert joined(first, rest).kv_step == kv_step


async def test_a_cache_that_was_evicted_after_an_update_still_counts_as_old(
    make_loaded: Callable[..., LoadedModel],
) -> None:
    """Kept over an update, interrupted, evicted by another session, continued: part of step 1 saw keys of step 0."""
    engine = TorchEngine(make_loaded(0), run="r", max_slots=1)
    request = GenerationRequest(session="a", token_ids_T=tuple(range(20, 44)), max_new_tokens=60, stop_token_ids=())
    task = asyncio.create_task(engine.generate(request))
    await sampled(engine, 5)
    version = WeightsVersion(run="r", incarnation=0, step=1, digest="")
    await engine.load_weights(version, make_loaded(1).model.state_dict(), keep_cache=True)
    await sampled(engine, 20)
    await engine.interrupt("a")
    first = await task
    await engine.generate(GenerationRequest(session="b", token_ids_T=(50, 51), max_new_tokens=3, stop_token_ids=()))
    rest = await engine.generate(continuation(request, first))
    assert (engine.metrics.evictions, first.kv_step, rest.kv_step) == (2, 0, 1)
    assert joined(first, rest).kv_step == 0


async def sampled(engine: TorchEngine, num_tokens: int) -> None:
    while engine.metrics.generated_tokens < num_tokens:
        await asyncio.sleep(0)
