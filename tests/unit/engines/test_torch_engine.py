from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
import torch

from flightschool.engines.folders import LoadedModel
from flightschool.engines.torch_engine import TorchEngine
from flightschool.engines.transformer import CausalAttention, Transformer
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun, WeightsVersion

PREFIX = tuple(range(20, 45))


def ask(session: str, tokens: Sequence[int], new: int = 8, **changes: object) -> GenerationRequest:
    plain = {"session": session, "token_ids_T": tuple(tokens), "max_new_tokens": new, "stop_token_ids": ()}
    return GenerationRequest(**(plain | changes))  # type: ignore[arg-type]


def plain_logprobs(
    model: Transformer, context: Sequence[int], new: Sequence[int], temperature: float = 1.0
) -> list[float]:
    """What a forward pass over the whole sequence, without any cache, says about the new tokens."""
    tokens = torch.tensor([*context, *new])
    with torch.no_grad():
        hidden = model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
        logits = model.logits(hidden[len(context) - 1 : -1]).double() / temperature
    picked = logits.log_softmax(-1).gather(1, torch.tensor(new).unsqueeze(1))
    return [float(value) for value in picked.squeeze(1)]


def check(loaded: LoadedModel, context: Sequence[int], generation: Generation, temperature: float = 1.0) -> None:
    expected = plain_logprobs(loaded.model, context, generation.token_ids_T, temperature)
    assert generation.logprobs_T == pytest.approx(expected, abs=1e-5)


async def test_multi_turn_sessions_on_shared_prefixes_agree_with_a_plain_forward_pass(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_slots=8)
    contexts = {f"s{i}": (*PREFIX[: 25 - i % 2], *range(50, 51 + 3 * i)) for i in range(6)}
    for turn in range(3):
        requests = [
            ask(name, context, new=3 + 2 * index, seed=10 * turn + index, prefix_length=25 - index % 2)
            for index, (name, context) in enumerate(contexts.items())
        ]
        done = await asyncio.gather(*(engine.generate(request) for request in requests))
        for request, generation in zip(requests, done, strict=True):
            assert len(generation.token_ids_T) == request.max_new_tokens
            check(loaded, request.token_ids_T, generation)
            contexts[request.session] += (*generation.token_ids_T, 7, 8, 9)
    assert engine.metrics.prefix_hits == 4  # six sessions on two prefixes
    assert engine.metrics.generated_tokens == 3 * sum(3 + 2 * index for index in range(6))


async def test_later_turns_compute_only_what_is_new(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    context = tuple(range(60, 100))
    first = await engine.generate(ask("s", context, new=5))
    before = engine.metrics.prefill_tokens
    assert before == 40
    await engine.generate(ask("s", (*context, *first.token_ids_T, 3, 4, 5), new=5))
    assert engine.metrics.prefill_tokens - before == 4  # the last sampled token and the three that follow it


async def test_a_group_computes_its_prompt_once(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    prompt = tuple(range(60, 100))
    requests = [ask(f"s{i}", prompt, seed=i, prefix_length=len(prompt)) for i in range(8)]
    done = await asyncio.gather(*(engine.generate(request) for request in requests))
    assert engine.metrics.prefill_tokens == 39 + 8  # the prefix, then the last token of each member
    assert len({generation.token_ids_T for generation in done}) > 1
    for request, generation in zip(requests, done, strict=True):
        check(loaded, request.token_ids_T, generation)


@pytest.mark.parametrize("max_step_tokens", [512, 16])
async def test_prompts_that_begin_alike_compute_their_beginning_once(loaded: LoadedModel, max_step_tokens: int) -> None:
    engine = TorchEngine(loaded, max_step_tokens=max_step_tokens)
    opening = tuple(range(60, 100))
    prompts = [(*opening, 10 + n, 11, 12) for n in range(3)]
    requests = [
        ask(f"{n}-{i}", prompt, seed=i, prefix_length=len(prompt)) for n, prompt in enumerate(prompts) for i in range(4)
    ]
    done = await asyncio.gather(*(engine.generate(request) for request in requests))
    assert engine.metrics.prefill_tokens == 40 + 3 * 2 + 12  # the last token of each prompt is its members' own
    for request, generation in zip(requests, done, strict=True):
        check(loaded, request.token_ids_T, generation)
    later = await engine.generate(ask("later", (*opening, 5, 6), prefix_length=42))
    assert engine.metrics.prefill_tokens == 58 + 2
    check(loaded, (*opening, 5, 6), later)


async def test_a_beginning_of_older_weights_is_not_taken_over(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    opening = tuple(range(60, 100))
    await engine.generate(ask("a", (*opening, 5, 6), prefix_length=42))
    engine.update_weights(WeightsVersion(run="", incarnation=0, step=1), None)
    before = engine.metrics.prefill_tokens
    generation = await engine.generate(ask("b", (*opening, 7, 8), prefix_length=42))
    assert engine.metrics.prefill_tokens - before == 42
    assert generation.kv_step == 1


async def test_requests_join_between_steps(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    long = asyncio.create_task(engine.generate(ask("long", (5, 6, 7), new=30)))
    while engine.metrics.generated_tokens < 5:
        await asyncio.sleep(0)
    short = await engine.generate(ask("short", tuple(range(50, 70)), new=4))
    assert not long.done()
    check(loaded, (5, 6, 7), await long)
    check(loaded, range(50, 70), short)
    assert engine.metrics.steps == 30


async def test_same_seed_same_tokens_whatever_else_runs(loaded: LoadedModel) -> None:
    alone = await TorchEngine(loaded).generate(ask("a", PREFIX, new=20, seed=5))
    engine = TorchEngine(loaded)
    together = await asyncio.gather(
        engine.generate(ask("a", PREFIX, new=20, seed=5)),
        *(engine.generate(ask(f"b{i}", range(70 + i, 90 + 2 * i), new=9, seed=i)) for i in range(5)),
    )
    assert together[0].token_ids_T == alone.token_ids_T
    other = await TorchEngine(loaded).generate(ask("a", PREFIX, new=20, seed=6))
    assert other.token_ids_T != alone.token_ids_T


async def test_slots_are_reused_after_release_without_leaking_the_past(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_slots=1)
    await engine.generate(ask("old", range(50, 90), new=12))
    engine.release("old")
    generation = await engine.generate(ask("new", (30, 31), new=6))
    check(loaded, (30, 31), generation)
    assert engine.metrics.evictions == 0


async def test_more_sessions_than_slots_queue_up_and_idle_ones_give_way(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_slots=3, max_prefixes=2)
    contexts = {f"s{i}": (*PREFIX, 50 + i, 51 + i) for i in range(9)}
    for turn in range(2):
        requests = [
            ask(name, context, new=4, seed=turn, prefix_length=len(PREFIX)) for name, context in contexts.items()
        ]
        done = await asyncio.gather(*(engine.generate(request) for request in requests))
        for request, generation in zip(requests, done, strict=True):
            check(loaded, request.token_ids_T, generation)
            contexts[request.session] += (*generation.token_ids_T, 11)
    assert engine.metrics.evictions == 6 + 6


async def test_edited_history_recomputes_from_where_it_differs(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    await engine.generate(ask("s", (*PREFIX, 50, 51, 52, 53), prefix_length=len(PREFIX)))
    for edited in ((*PREFIX, 50, 51, 99), (*PREFIX[:10], 99, 98), PREFIX[:3], (1, 2, 3)):
        check(loaded, edited, await engine.generate(ask("s", edited, prefix_length=2)))


async def test_long_prompts_are_computed_in_pieces(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_step_tokens=7)
    contexts = [(*PREFIX, *range(50, 55 + 11 * i)) for i in range(3)]
    done = await asyncio.gather(
        *(engine.generate(ask(str(i), c, prefix_length=25)) for i, c in enumerate(contexts)),
        engine.generate(ask("running", (4,))),
    )
    for context, generation in zip([*contexts, (4,)], done, strict=True):
        check(loaded, context, generation)


async def test_stop_token_is_included_with_its_logprob(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    free = await engine.generate(ask("a", PREFIX, new=20, seed=3))
    stop = free.token_ids_T[6]
    length = free.token_ids_T.index(stop) + 1
    stopped = await engine.generate(ask("b", PREFIX, new=20, seed=3, stop_token_ids=(stop,)))
    assert stopped.finish == "stop"
    assert stopped.token_ids_T == free.token_ids_T[:length]
    assert stopped.logprobs_T == pytest.approx(free.logprobs_T[:length], abs=1e-6)
    assert free.finish == "length"


@pytest.mark.parametrize("temperature", [0.5, 1.7])
async def test_logprobs_are_those_of_the_tempered_distribution(loaded: LoadedModel, temperature: float) -> None:
    generation = await TorchEngine(loaded).generate(ask("s", PREFIX, new=12, temperature=temperature))
    check(loaded, PREFIX, generation, temperature)


async def test_temperature_zero_is_greedy_with_logprobs_at_one(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    one, two = await asyncio.gather(*(engine.generate(ask(str(i), PREFIX, seed=i, temperature=0.0)) for i in range(2)))
    assert one.token_ids_T == two.token_ids_T
    check(loaded, PREFIX, one)


# ------------------------------------------------------------------------------------------------ weights


def version(step: int, incarnation: int = 0) -> WeightsVersion:
    return WeightsVersion(run="", incarnation=incarnation, step=step)


class UpdateAfter:
    """A weight receiver: after some tokens it hands the engine other weights."""

    def __init__(self, engine: TorchEngine, other: Transformer, num_tokens: int, keep_cache: bool) -> None:
        self._arguments = (engine, other, num_tokens, keep_cache)
        self.done = False

    def __call__(self) -> None:
        engine, other, num_tokens, keep_cache = self._arguments
        if not self.done and engine.metrics.generated_tokens >= num_tokens:
            engine.update_weights(version(4), dict(other.state_dict()), keep_cache=keep_cache)
            self.done = True


@pytest.mark.parametrize("keep_cache", [True, False])
async def test_weights_change_between_two_tokens(
    loaded: LoadedModel, make_loaded: Callable[..., LoadedModel], keep_cache: bool
) -> None:
    old, new = make_loaded(0).model, make_loaded(1).model
    engine = TorchEngine(loaded, step=3)
    engine.between_steps = UpdateAfter(engine, new, 5, keep_cache)
    generation = await engine.generate(ask("s", PREFIX, new=12, prefix_length=20))
    assert generation.versions == (VersionRun(step=3, count=5), VersionRun(step=4, count=7))
    assert engine.version.step == 4
    tokens, logprobs = generation.token_ids_T, generation.logprobs_T
    assert logprobs[:5] == pytest.approx(plain_logprobs(old, PREFIX, tokens[:5]), abs=1e-5)
    fresh = plain_logprobs(new, (*PREFIX, *tokens[:5]), tokens[5:])
    if keep_cache:
        assert generation.kv_step == 3
        assert max(abs(a - b) for a, b in zip(logprobs[5:], fresh, strict=True)) > 1e-3  # the mismatch is real
    else:
        assert generation.kv_step == 4
        assert logprobs[5:] == pytest.approx(fresh, abs=1e-5)


async def test_new_sessions_never_take_a_prefix_of_older_weights(
    loaded: LoadedModel, make_loaded: Callable[..., LoadedModel]
) -> None:
    engine = TorchEngine(loaded)
    await engine.generate(ask("a", PREFIX, prefix_length=24))
    engine.update_weights(version(1), make_loaded(1).model.state_dict())
    generation = await engine.generate(ask("b", PREFIX, prefix_length=24))
    assert (generation.kv_step, engine.metrics.prefix_hits) == (1, 0)
    check(loaded, PREFIX, generation)
    old = await engine.generate(ask("a", (*PREFIX, 1, 2), prefix_length=24))
    assert (old.kv_step, old.versions[0].step) == (0, 1)


async def test_sessions_of_a_dead_incarnation_end(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    await engine.generate(ask("idle", PREFIX))
    running = asyncio.create_task(engine.generate(ask("running", PREFIX, new=50)))
    while not engine.metrics.generated_tokens > 10:
        await asyncio.sleep(0)
    engine.update_weights(version(0, incarnation=1), None)
    with pytest.raises(InfrastructureError, match="incarnation"):
        await running
    with pytest.raises(InfrastructureError, match="incarnation"):
        await engine.generate(ask("idle", (*PREFIX, 1)))
    engine.release("idle")
    check(loaded, PREFIX, await engine.generate(ask("idle", PREFIX)))


async def test_weights_that_do_not_fit_change_nothing(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    state = {name: tensor * 2 for name, tensor in loaded.model.state_dict().items()}
    before = loaded.model.model.norm.weight.clone()
    state.pop("model.layers.1.mlp.up_proj.weight")
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        engine.update_weights(version(1), state)
    assert torch.equal(loaded.model.model.norm.weight, before)
    assert engine.version.step == 0


# ------------------------------------------------------------------------------------------------ bad ends


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (ask("s", range(3, 67)), "context of 64 tokens"),
        (ask("s", ()), "context of 0 tokens"),
        (ask("s", (1, 300)), "out of range"),
        (ask("s", (1, -1)), "out of range"),
        (ask("s", (1,), new=0), "out of range"),
        (ask("s", (1,), temperature=-1.0), "out of range"),
    ],
)
async def test_requests_that_cannot_be_served_are_refused(
    loaded: LoadedModel, request_: GenerationRequest, what: str
) -> None:
    engine = TorchEngine(loaded, max_context=64)
    with pytest.raises(InputError, match=what):
        await engine.generate(request_)
    check(loaded, PREFIX, await engine.generate(ask("s", PREFIX)))


async def test_generation_ends_at_the_context_limit(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_context=30)
    generation = await engine.generate(ask("s", PREFIX, new=20))
    assert (len(generation.token_ids_T), generation.finish) == (5, "length")


async def test_a_session_asks_one_thing_at_a_time(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    first = asyncio.create_task(engine.generate(ask("s", PREFIX)))
    await asyncio.sleep(0)
    with pytest.raises(InputError, match="two requests"):
        await engine.generate(ask("s", PREFIX))
    check(loaded, PREFIX, await first)


async def test_cancelled_requests_leave_and_others_go_on(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_slots=1)
    first = asyncio.create_task(engine.generate(ask("a", PREFIX, new=200)))
    second = asyncio.create_task(engine.generate(ask("b", (5, 6))))
    while engine.metrics.generated_tokens < 3:
        await asyncio.sleep(0)
    first.cancel()
    check(loaded, (5, 6), await second)
    engine.release("a")
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_release_cancels_what_still_runs(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)
    running = asyncio.create_task(engine.generate(ask("a", PREFIX, new=200)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    engine.release("a")
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_broken_pass_fails_every_waiter_and_the_engine(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded, max_slots=1)
    waiters = [asyncio.create_task(engine.generate(ask(str(i), PREFIX))) for i in range(3)]
    await asyncio.sleep(0)
    loaded.model.model.layers[1].mlp.up_proj.weight.data = torch.zeros(3, 3)  # type: ignore[union-attr]
    ends = await asyncio.gather(*waiters, return_exceptions=True)
    assert all(isinstance(end, InfrastructureError) and "engine died" in str(end) for end in ends)
    with pytest.raises(InfrastructureError, match="engine died"):
        await engine.generate(ask("later", PREFIX))


def test_an_engine_outlives_its_event_loop(loaded: LoadedModel) -> None:
    engine = TorchEngine(loaded)

    async def abandoned() -> None:
        waiter = asyncio.create_task(engine.generate(ask("lost", PREFIX, new=200)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()

    asyncio.run(abandoned())
    check(loaded, PREFIX, asyncio.run(engine.generate(ask("s", PREFIX))))
    engine.close()
    with pytest.raises(InfrastructureError, match="closed"):
        asyncio.run(engine.generate(ask("s", PREFIX)))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 2, 1), (2, 1, 1, 3, 1), (1, 1, 2, 1, 1)])
async def test_lone_and_shared_prefixes_mix_in_one_step(loaded: LoadedModel, sizes: tuple[int, ...]) -> None:
    """Prefixes of different lengths, some used by one sequence only, some by several, beside one without any."""
    engine = TorchEngine(loaded, max_slots=16)
    requests = [ask("bare", range(90, 99), new=6)]
    for group, size in enumerate(sizes):
        prompt = tuple(range(20 + group, 32 + 4 * group))
        requests += [
            ask(f"g{group}m{member}", (*prompt, 5), new=4 + member, seed=member, prefix_length=len(prompt))
            for member in range(size)
        ]
    for request, generation in zip(
        requests, await asyncio.gather(*(engine.generate(request) for request in requests)), strict=True
    ):
        check(loaded, request.token_ids_T, generation)
