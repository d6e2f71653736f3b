"""Clients of served engines: what a server gets wrong is an error by name, and never a number that trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.served import PROMPT, ask, client, logprobs, version

from flightschool.engines.folders import load_model
from flightschool.engines.served.wire import salt_of
from flightschool.errors import InfrastructureError, InputError, TokenContractError
from flightschool.testing.served import Event, ServedFake, SglangFake, VllmFake


def vllm_with(values: Any) -> Callable[[Event], Event]:
    def distort(event: Event) -> Event:
        logprobs(event)["token_logprobs"] = values
        return event

    return distort


def vllm_without(key: str) -> Callable[[Event], Event]:
    def distort(event: Event) -> Event:
        event["choices"][0].pop(key)
        return event

    return distort


def sglang_with(change: Callable[[Event], Any]) -> Callable[[Event], Event]:
    def distort(event: Event) -> Event:
        change(event)
        return event

    return distort


LIES: dict[str, tuple[type[ServedFake], Callable[[Event], Event], str]] = {
    "no log-probabilities": (VllmFake, vllm_without("logprobs"), "no log-probabilities for 1 tokens"),
    "null": (VllmFake, vllm_with([None]), "missing: None"),
    "NaN": (VllmFake, vllm_with([float("nan")]), "is nan"),
    "minus infinity as a number": (VllmFake, vllm_with([-9999.0]), r"is -9999\.0"),
    "positive": (VllmFake, vllm_with([0.5]), r"is 0\.5"),
    "too many": (VllmFake, vllm_with([-0.5, -0.5]), "2 log-probabilities for 1 tokens"),
    "filled with zeros": (VllmFake, vllm_with([0.0]), "every log-probability is 0.0"),
    "no token ids": (VllmFake, vllm_without("token_ids"), "token_ids are missing"),
    "sglang: none": (
        SglangFake,
        sglang_with(lambda event: event["meta_info"].pop("output_token_logprobs")),
        "output_token_logprobs are missing",
    ),
    "sglang: of other tokens": (
        SglangFake,
        sglang_with(lambda event: event["meta_info"].update(output_token_logprobs=[[-0.5, 299, None]])),
        "or of other tokens",
    ),
    "sglang: null": (
        SglangFake,
        sglang_with(
            lambda event: event["meta_info"].update(
                output_token_logprobs=[[None, token, None] for token in event["output_ids"]]
            )
        ),
        "missing: None",
    ),
    "sglang: a gap": (
        SglangFake,
        sglang_with(lambda event: event["meta_info"].update(completion_tokens=99)),
        "1 token ids after 0 of 99",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_log_probabilities_that_are_not_exact_raise_by_name(lie: str, folder: Path) -> None:
    kind, distort, what = LIES[lie]
    async with kind(load_model(folder), distort=distort) as fake:
        engine = client(fake, folder)
        with pytest.raises(TokenContractError, match=what) as caught:
            await engine.generate(ask())
        assert "server" in caught.value.where or fake.url in caught.value.where
        await engine.aclose()


@pytest.mark.parametrize("kind", [VllmFake, SglangFake])
async def test_a_stream_that_breaks_is_infrastructure_and_no_short_completion(
    kind: type[ServedFake], folder: Path
) -> None:
    left = 4

    def distort(event: Event) -> Event | None:
        nonlocal left
        left -= 1
        return event if left else None

    async with kind(load_model(folder), distort=distort) as fake:
        engine = client(fake, folder)
        with pytest.raises(InfrastructureError, match=r"did not answer|stream"):
            await engine.generate(ask())
        await engine.aclose()


@pytest.mark.parametrize(("code", "kind"), [(400, InputError), (503, InfrastructureError), (None, InfrastructureError)])
async def test_an_error_within_a_stream_is_what_its_code_says(
    code: int | None, kind: type[Exception], folder: Path
) -> None:
    """Both servers have answered 200 by then; what they refuse would be refused again, so it is not retried."""
    error = {"message": "too long", "type": "invalid_request_error"} | ({} if code is None else {"code": code})
    async with SglangFake(load_model(folder), distort=lambda event: {"error": error}) as fake:
        engine = client(fake, folder)
        with pytest.raises(kind, match="too long"):
            await engine.generate(ask())
        await engine.aclose()


async def test_a_server_that_is_gone_says_where_it_should_be(folder: Path) -> None:
    async with VllmFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.connect()
    for attempt in (engine.check_health(), engine.generate(ask())):
        with pytest.raises(InfrastructureError, match="did not answer") as caught:
            await attempt
        assert fake.url in str(caught.value)
    await engine.aclose()


async def test_requests_ask_for_the_full_support_and_nothing_of_the_server_s_own_defaults(folder: Path) -> None:
    async with VllmFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.generate(ask(seed=3))
        body = next(body for path, body in fake.requests if path == "POST /v1/completions")
        wanted = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "logprobs": 0}
        assert {key: body[key] for key in wanted} == wanted
        assert body["prompt"] == list(PROMPT)
        assert body["cache_salt"] == salt_of(version(0), 0)
        await engine.aclose()


@pytest.mark.parametrize("processed", [True, False])
async def test_log_probabilities_that_ignore_the_temperature_are_noticed(processed: bool, folder: Path) -> None:
    async with VllmFake(load_model(folder), processed=processed) as fake:
        engine = client(fake, folder)
        await engine.generate(ask(temperature=1.0))  # there both are the same
        if processed:
            await engine.generate(ask(temperature=0.5))
            probes = [path for path, body in fake.requests if path == "POST /v1/completions" and not body.get("stream")]
            await engine.generate(ask(temperature=0.7))
            assert len(probes) == 2  # asked once
        else:
            with pytest.raises(TokenContractError, match="do not follow the temperature") as caught:
                await engine.generate(ask(temperature=0.5))
            assert "--logprobs-mode processed_logprobs" in caught.value.mend
        await engine.aclose()


@pytest.mark.parametrize("cumulative", [True, False])
async def test_both_kinds_of_sglang_streams_give_the_same_tokens(cumulative: bool, folder: Path) -> None:
    async with SglangFake(load_model(folder), cumulative=cumulative) as fake:
        engine = client(fake, folder)
        done = await engine.generate(ask(seed=1))
        assert len(done.token_ids_T) == len(done.logprobs_T) == 12
        await engine.aclose()


async def test_a_server_for_shorter_sequences_is_refused_at_the_door(folder: Path) -> None:
    async with SglangFake(load_model(folder)) as fake:
        fake.engine._max_context = 64
        engine = client(fake, folder)
        with pytest.raises(InputError, match="takes 64 tokens, 200 are asked for"):
            await engine.connect()
        await engine.aclose()


@pytest.mark.parametrize("stops", [(), (7,)])
async def test_sglang_ends_where_it_is_asked_to_and_nowhere_else(stops: tuple[int, ...], folder: Path) -> None:
    """``ignore_eos`` would switch the given stop tokens off; the model's own end tokens must not end a completion."""
    async with SglangFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        free = (await engine.generate(ask(new=40, seed=5))).token_ids_T
        await engine.aclose()
    own = (free[3], free[9])  # the model's end tokens: each would cut it short
    async with SglangFake(load_model(folder), eos_token_ids=own) as fake:
        engine = client(fake, folder)
        done = await engine.generate(ask(new=40, seed=5, stops=stops))
        assert done.token_ids_T[:4] == free[:4]
        if stops:
            assert done.finish == "length" or done.token_ids_T[-1] in stops
        else:
            assert (done.token_ids_T, done.finish) == (free, "length")
        (body, *more) = [body for path, body in fake.requests if path == "POST /generate"]
        assert body["sampling_params"]["ignore_eos"] is not bool(stops)
        assert bool(more) is bool(stops)  # what the model's own end cut off was asked for again
        await engine.aclose()


async def test_a_server_that_gives_a_request_up_again_and_again_is_an_error(folder: Path) -> None:
    def aborted(event: Event) -> Event:
        event["choices"][0].update(finish_reason="abort", token_ids=[], logprobs={"token_logprobs": []})
        return event

    async with VllmFake(load_model(folder), distort=aborted) as fake:
        engine = client(fake, folder)
        with pytest.raises(InfrastructureError, match="gave session s up 3 times in a row"):
            await engine.generate(ask())
        await engine.aclose()
