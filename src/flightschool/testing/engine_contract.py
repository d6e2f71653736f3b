"""What every ``protocols.TrainedEngine`` must do, as a class of tests to inherit from.

An engine of your own passes when this passes::

    class TestMyEngine(EngineContract):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[EngineBench]:
            yield MyBench(...)

The bench holds a new engine on step 0 of the run ``contract``, and knows a second way to score tokens: a plain forward
pass over the whole sequence. Needs no test framework itself; pytest collects the inherited methods.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from flightschool.engines.grammar_text import grammar_support
from flightschool.engines.requests import check_generation, continuation, joined
from flightschool.errors import InfrastructureError, InputError, TokenContractError
from flightschool.protocols import Generation, GenerationRequest, TrainedEngine
from flightschool.records import VersionRun, WeightsVersion

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EngineBench", "EngineContract", "bench_version"]

PROMPT = tuple(range(20, 44))
GRAMMAR = 'start: "user" | "use the " /[0-9]{2}/ "."'
MANY = 60
"""New tokens of requests that are interrupted or updated on the way."""


def bench_version(step: int, incarnation: int = 0) -> WeightsVersion:
    """What the bench calls weights."""
    return WeightsVersion(run="contract", incarnation=incarnation, step=step, digest=f"weights-{step}")


class EngineBench(Protocol):
    """An engine under test, and what is known about it."""

    engine: TrainedEngine
    vocab: int
    """Rows of the model's output: more than 50, and its context holds 200 tokens."""
    tolerance: float
    """Largest difference of log-probabilities to the plain pass."""
    grammars: bool
    """Whether it samples under a grammar."""
    replays: bool
    """Whether an interrupted and continued completion equals, token by token, one that was never interrupted."""
    recomputes: bool
    """Whether keys and values of older weights are never used again, even where that is allowed."""

    def state(self, step: int) -> Mapping[str, Tensor]:
        """The weights of a step; steps 0 and 1 differ clearly."""
        ...

    def score(self, step: int, context: Sequence[int], new: Sequence[int], temperature: float = 1.0) -> list[float]:
        """Log-probabilities of ``new`` after ``context`` under the weights of ``step``, by one plain pass."""
        ...

    def allowed(self, grammar: str, new: Sequence[int]) -> list[list[int]]:
        """Tokens that a grammar allows at each place of ``new``; only asked where ``grammars``."""
        ...

    def generated(self) -> int:
        """Tokens that the engine has sampled so far."""
        ...


def ask(session: str, tokens: Sequence[int] = PROMPT, new: int = 8, **changes: object) -> GenerationRequest:
    """A request without stop tokens."""
    plain = {"session": session, "token_ids_T": tuple(tokens), "max_new_tokens": new, "stop_token_ids": ()}
    return GenerationRequest(**(plain | changes))  # type: ignore[arg-type]


class EngineContract:
    """Inherit, and give a fixture ``bench``."""

    # ------------------------------------------------------------------ tokens and log-probabilities

    async def test_sampled_tokens_come_with_their_exact_log_probabilities(self, bench: EngineBench) -> None:
        """Ids in, ids out; one log-probability each, that of the full distribution; one version each."""
        done = await bench.engine.generate(ask("a"))
        assert len(done.token_ids_T) == 8
        assert all(0 <= token < bench.vocab for token in done.token_ids_T)
        assert (done.finish, done.support, done.log_kept_mass_T) == ("length", "full", ())
        assert (done.versions, done.kv_step) == ((VersionRun(step=0, count=8),), 0)
        _agree(bench, 0, PROMPT, done)

    async def test_log_probabilities_are_those_of_the_tempered_distribution(self, bench: EngineBench) -> None:
        """A trainer that divides by the same temperature gets the same number."""
        done = await bench.engine.generate(ask("a", temperature=0.6))
        _agree(bench, 0, PROMPT, done, temperature=0.6)

    async def test_temperature_zero_takes_the_likeliest_and_reports_at_one(self, bench: EngineBench) -> None:
        """Greedy, whatever the seed."""
        one = await bench.engine.generate(ask("a", seed=1, temperature=0.0))
        two = await bench.engine.generate(ask("b", seed=2, temperature=0.0))
        assert one.token_ids_T == two.token_ids_T
        _agree(bench, 0, PROMPT, one)

    async def test_equal_seeds_give_equal_tokens_and_others_do_not(self, bench: EngineBench) -> None:
        """Randomness is the request's own, whatever else runs."""
        alone = await bench.engine.generate(ask("a", new=20, seed=5))
        crowd = [ask(f"s{i}", new=20, seed=5 + i) for i in range(3)]
        same, *others = await asyncio.gather(*(bench.engine.generate(request) for request in crowd))
        assert same.token_ids_T == alone.token_ids_T
        assert all(other.token_ids_T != alone.token_ids_T for other in others)

    async def test_a_stop_token_ends_and_is_included(self, bench: EngineBench) -> None:
        """With its log-probability; nothing but the request's stop tokens ends a completion."""
        free = await bench.engine.generate(ask("a", new=20, seed=3))
        stop = free.token_ids_T[6]
        length = free.token_ids_T.index(stop) + 1
        done = await bench.engine.generate(ask("b", new=20, seed=3, stop_token_ids=(stop,)))
        assert (done.token_ids_T, done.finish) == (free.token_ids_T[:length], "stop")
        assert len(done.logprobs_T) == length
        assert (len(free.token_ids_T), free.finish) == (20, "length")

    async def test_turns_of_many_sessions_with_a_common_prompt(self, bench: EngineBench) -> None:
        """Whatever is cached and shared, the numbers are those of a plain pass."""
        contexts = {f"s{i}": (*PROMPT, *range(50, 51 + 2 * i)) for i in range(4)}
        for turn in range(2):
            requests = [
                ask(name, context, new=3 + turn, seed=turn, prefix_length=len(PROMPT))
                for name, context in contexts.items()
            ]
            for request, done in zip(requests, await _all(bench, requests), strict=True):
                _agree(bench, 0, request.token_ids_T, done)
                contexts[request.session] += (*done.token_ids_T, 7, 8)

    async def test_a_history_that_was_edited(self, bench: EngineBench) -> None:
        """A context that does not extend the session's last one is computed from where it differs."""
        await bench.engine.generate(ask("s", (*PROMPT, 50, 51, 52)))
        for edited in ((*PROMPT, 50, 46), PROMPT[:3], (1, 2, 3)):
            _agree(bench, 0, edited, await bench.engine.generate(ask("s", edited)))

    async def test_the_context_limit_ends_a_completion(self, bench: EngineBench) -> None:
        """As ``length``, exactly at the limit."""
        tokens = [20 + place % 20 for place in range(bench.engine.max_context - 3)]
        done = await bench.engine.generate(ask("s", tokens, new=10))
        assert (len(done.token_ids_T), done.finish) == (3, "length")

    # ------------------------------------------------------------------ interruption

    async def test_an_interrupted_completion_goes_on_after_its_last_token(self, bench: EngineBench) -> None:
        """What was sampled stays; the rest follows it."""
        request = ask("s", new=MANY, seed=4)
        async with _running(bench, [request], least=3) as (task,):
            assert await bench.engine.interrupt("s") == 1
            piece = await task
        assert piece.finish == "interrupted"
        assert 3 <= len(piece.token_ids_T) < MANY
        _agree(bench, 0, PROMPT, piece)
        rest = await bench.engine.generate(continuation(request, piece))
        whole = joined(piece, rest)
        check_generation(whole)
        assert len(whole.token_ids_T) == MANY
        assert whole.versions == (VersionRun(step=0, count=MANY),)
        _agree(bench, 0, PROMPT, whole)
        if bench.replays:
            never = await bench.engine.generate(msgspec.structs.replace(request, session="never"))
            assert never.token_ids_T == whole.token_ids_T

    async def test_all_are_interrupted_or_one(self, bench: EngineBench) -> None:
        """The others of one go on; with nothing running nothing happens."""
        assert await bench.engine.interrupt() == 0
        async with _running(bench, [ask("a", new=MANY), ask("b", new=MANY), ask("c", new=12)], least=6) as tasks:
            assert await bench.engine.interrupt("a") == 1
            assert (await tasks[0]).finish == "interrupted"
            assert await bench.engine.interrupt() >= 1
            assert (await tasks[1]).finish == "interrupted"
            assert (await tasks[2]).finish in ("interrupted", "length")

    # ------------------------------------------------------------------ weights

    async def test_new_weights_sample_what_comes_after_them(self, bench: EngineBench) -> None:
        """Between two requests: the version is named, a new session knows nothing of the old weights."""
        await bench.engine.generate(ask("old", prefix_length=len(PROMPT)))
        await bench.engine.load_weights(bench_version(1), bench.state(1))
        assert bench.engine.version == bench_version(1)
        done = await bench.engine.generate(ask("new", prefix_length=len(PROMPT)))
        assert (done.versions, done.kv_step) == ((VersionRun(step=1, count=8),), 1)
        _agree(bench, 1, PROMPT, done)

    async def test_weights_that_are_not_numbers_end_as_infrastructure(self, bench: EngineBench) -> None:
        """Whatever broke them, the policy did not: nothing is sampled of them at any temperature, nothing scores 0.

        An engine in this process is dead then; one that is served is as dead as its server says it is.
        """
        broken = {name: tensor * math.nan for name, tensor in bench.state(1).items()}
        await bench.engine.load_weights(bench_version(1), broken)
        for temperature in (1.0, 0.0):
            request = ask("s", temperature=temperature)
            await _refused((InfrastructureError, TokenContractError), bench.engine.generate(request))

    async def test_weights_change_between_two_tokens_and_the_cache_is_recomputed(self, bench: EngineBench) -> None:
        """Each token says whose it is, and has the log-probability that those weights gave it."""
        done = await self._updated_on_the_way(bench, keep_cache=False)
        assert done.kv_step == 1
        count = done.versions[0].count
        _agree(bench, 0, PROMPT, done, slice(0, count))
        _agree(bench, 1, PROMPT, done, slice(count, None))

    async def test_weights_change_between_two_tokens_and_the_cache_is_kept(self, bench: EngineBench) -> None:
        """``kv_step`` names the oldest weights under the cache; the mismatch that it stands for is real."""
        done = await self._updated_on_the_way(bench, keep_cache=True)
        assert done.kv_step == 0
        count = done.versions[0].count
        _agree(bench, 0, PROMPT, done, slice(0, count))
        if not bench.recomputes:
            fresh = bench.score(1, PROMPT, done.token_ids_T)[count:]
            assert max(abs(a - b) for a, b in zip(done.logprobs_T[count:], fresh, strict=True)) > 1e-3
        later = await bench.engine.generate(ask("s", (*PROMPT, *done.token_ids_T, 5), new=2))
        assert (later.kv_step, later.versions[0].step) == (0, 1)

    async def _updated_on_the_way(self, bench: EngineBench, *, keep_cache: bool) -> Generation:
        async with _running(bench, [ask("s", new=MANY)], least=3) as (task,):
            await bench.engine.load_weights(bench_version(1), bench.state(1), keep_cache=keep_cache)
            done = await task
        check_generation(done)
        assert done.finish == "length"
        assert [run.step for run in done.versions] == [0, 1]
        return done

    async def test_weights_that_do_not_fit_change_nothing(self, bench: EngineBench) -> None:
        """A missing tensor or another shape is named; what was served is served."""
        state = dict(bench.state(1))
        name = next(name for name in state if name.endswith("up_proj.weight"))
        for wrong in ({**state, name: state[name][:1]}, {key: state[key] for key in state if key != name}):
            error = await _refused(InputError, bench.engine.load_weights(bench_version(1), wrong))
            assert name in str(error)
        assert bench.engine.version.step == 0
        _agree(bench, 0, PROMPT, await bench.engine.generate(ask("s")))

    async def test_sessions_of_a_dead_incarnation_end(self, bench: EngineBench) -> None:
        """Its steps cannot be compared by number, so running and idle sessions are infrastructure failures."""
        await bench.engine.generate(ask("idle"))
        async with _running(bench, [ask("running", new=MANY)], least=3) as (task,):
            await bench.engine.load_weights(bench_version(1, incarnation=1), bench.state(1))
            await _refused(InfrastructureError, task)
        await _refused(InfrastructureError, bench.engine.generate(ask("idle", (*PROMPT, 1))))
        bench.engine.release("idle")
        done = await bench.engine.generate(ask("idle"))
        assert done.versions[0].step == 1
        _agree(bench, 1, PROMPT, done)

    # ------------------------------------------------------------------ grammars

    async def test_a_grammar_restricts_and_its_support_is_recorded(self, bench: EngineBench) -> None:
        """Log-probabilities are renormalised over what was allowed; what that held before is recorded."""
        request = ask("s", new=40, grammar=GRAMMAR, stop_token_ids=(2,))
        if not bench.grammars:
            await _refused(InputError, bench.engine.generate(request))
            return
        done = await bench.engine.generate(request)
        check_generation(done)
        assert (done.support, done.finish) == (grammar_support(GRAMMAR), "stop")
        allowed = bench.allowed(GRAMMAR, done.token_ids_T)
        for place, (token, logprob, kept) in enumerate(
            zip(done.token_ids_T, done.logprobs_T, done.log_kept_mass_T, strict=True)
        ):
            context = (*PROMPT, *done.token_ids_T[:place])
            full = {other: bench.score(0, context, (other,))[0] for other in allowed[place]}
            mass = math.log(math.fsum(math.exp(value) for value in full.values()))
            assert abs(kept - mass) <= bench.tolerance
            assert abs(logprob - (full[token] - mass)) <= bench.tolerance

    async def test_a_broken_grammar_is_refused_and_others_go_on(self, bench: EngineBench) -> None:
        """It is an error of the request, not of the engine."""
        async with _running(bench, [ask("a", new=30)], least=1) as (task,):
            await _refused(InputError, bench.engine.generate(ask("b", grammar="start: nowhere")))
            _agree(bench, 0, PROMPT, await task)

    # ------------------------------------------------------------------ ends

    async def test_what_can_never_be_served_is_refused(self, bench: EngineBench) -> None:
        """One clear error for that request alone."""
        too_long = [20] * bench.engine.max_context
        for wrong in (ask("s", ()), ask("s", too_long), ask("s", (1, bench.vocab)), ask("s", (1, -1))):
            await _refused(InputError, bench.engine.generate(wrong))
        await _refused(InputError, bench.engine.generate(ask("s", new=0)))
        await _refused(InputError, bench.engine.generate(ask("s", temperature=-1.0)))
        _agree(bench, 0, PROMPT, await bench.engine.generate(ask("s")))

    async def test_a_session_asks_one_thing_at_a_time(self, bench: EngineBench) -> None:
        """The second is refused, the first goes on."""
        async with _running(bench, [ask("s", new=30)], least=1) as (task,):
            await _refused(InputError, bench.engine.generate(ask("s")))
            _agree(bench, 0, PROMPT, await task)

    async def test_a_released_session_is_forgotten(self, bench: EngineBench) -> None:
        """Also while a request of it runs, also if it never was."""
        bench.engine.release("never")
        async with _running(bench, [ask("s", new=MANY)], least=1) as (task,):
            bench.engine.release("s")
            await asyncio.wait([task])
            assert task.cancelled()
        _agree(bench, 0, PROMPT, await bench.engine.generate(ask("s")))

    async def test_a_cancelled_waiter_leaves_and_others_go_on(self, bench: EngineBench) -> None:
        """Nothing of it stays behind but the count of what was sampled for it."""
        async with _running(bench, [ask("a", new=MANY), ask("b", new=12)], least=2) as (first, second):
            first.cancel()
            _agree(bench, 0, PROMPT, await second)
        assert 0 < bench.engine.take_cut_tokens() < MANY
        _agree(bench, 0, PROMPT, await bench.engine.generate(ask("a")))
        assert bench.engine.take_cut_tokens() == 0

    async def test_a_closed_engine_fails_as_infrastructure(self, bench: EngineBench) -> None:
        """Waiters are told at once; nothing scores 0 for it."""
        await bench.engine.check_health()
        async with _running(bench, [ask("s", new=MANY)], least=1) as (task,):
            await bench.engine.aclose()
            await _refused(InfrastructureError, task)
        await _refused(InfrastructureError, bench.engine.generate(ask("t")))
        await _refused(InfrastructureError, bench.engine.check_health())


def _agree(
    bench: EngineBench,
    step: int,
    context: Sequence[int],
    done: Generation,
    part: slice = slice(None),
    *,
    temperature: float = 1.0,
) -> None:
    """The log-probabilities of (part of) a completion are those of a plain pass."""
    check_generation(done)
    expected = bench.score(step, context, done.token_ids_T, temperature)[part]
    worst = max(abs(a - b) for a, b in zip(done.logprobs_T[part], expected, strict=True))
    assert worst <= bench.tolerance, f"off by {worst}"


async def _all(bench: EngineBench, requests: Sequence[GenerationRequest]) -> list[Generation]:
    return list(await asyncio.gather(*(bench.engine.generate(request) for request in requests)))


@asynccontextmanager
async def _running(
    bench: EngineBench, requests: Sequence[GenerationRequest], *, least: int
) -> AsyncIterator[list[asyncio.Task[Generation]]]:
    """Requests under way, once ``least`` tokens of them were sampled."""
    goal = bench.generated() + least
    tasks = [asyncio.create_task(bench.engine.generate(request)) for request in requests]
    while bench.generated() < goal and not all(task.done() for task in tasks):
        await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refused(kind: type[Exception] | tuple[type[Exception], ...], waited: Awaitable[object]) -> Exception:
    try:
        await waited
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")
