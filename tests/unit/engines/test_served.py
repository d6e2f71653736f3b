"""Clients of served engines: what a server gets wrong is an error by name, and never a number that trains."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flightschool.digest import digest
from flightschool.engines import CausalAttention
from flightschool.engines.folders import LoadedModel, load_model, save_model
from flightschool.engines.served import FolderExporter, ServedEngine, SglangWire, VllmWire, Wire
from flightschool.engines.served.export import untied_copy
from flightschool.engines.served.wire import salt_of
from flightschool.errors import InfrastructureError, InputError, TokenContractError
from flightschool.protocols import GenerationRequest
from flightschool.records import WeightsVersion
from flightschool.testing.served import Event, ServedFake, SglangFake, VllmFake

PROMPT = tuple(range(20, 40))


def ask(session: str = "s", new: int = 12, stops: tuple[int, ...] = (), **changes: Any) -> GenerationRequest:
    return GenerationRequest(session=session, token_ids_T=PROMPT, max_new_tokens=new, stop_token_ids=stops, **changes)


def version(step: int, digest: str = "") -> WeightsVersion:
    return WeightsVersion(run="r", incarnation=0, step=step, digest=digest or f"d{step}")


@pytest.fixture
def folder(tmp_path: Path, make_loaded: Callable[..., LoadedModel]) -> Path:
    save_model(make_loaded(), tmp_path / "model")
    return tmp_path / "model"


def client(fake: ServedFake, folder: Path, **options: Any) -> ServedEngine:
    wire: Wire = VllmWire(fake.url) if isinstance(fake, VllmFake) else SglangWire(fake.url)
    exporter = FolderExporter(folder, folder.parent / "published")
    return ServedEngine(wire, vocab=300, max_context=200, run="r", exporter=exporter, **options)


def logprobs(event: Event) -> Any:
    """The place of a vLLM event where log-probabilities stand."""
    return event["choices"][0]["logprobs"]


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


# ------------------------------------------------------------------------------------------------ weights


def restart(fake: ServedFake, folder: Path) -> dict[str, str]:
    """As a server that is started anew: the weights of its own folder, no label; returns the sums of before."""
    before = fake.checksums()
    fake.load(folder)
    fake.label = "default"
    assert fake.checksums() != before
    return before


@pytest.mark.parametrize("kind", [VllmFake, SglangFake])
async def test_a_server_that_was_started_anew_gets_the_newest_weights_again(
    kind: type[ServedFake], folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    """Nothing is returned that it sampled under the weights of its own folder."""
    async with kind(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        there = restart(fake, folder)
        with pytest.raises(InfrastructureError, match="were lost: the server was started anew"):
            await engine.generate(ask())
        done = await engine.generate(ask())  # the attempt that is retried
        assert (done.versions[0].step, done.kv_step) == (1, 1)
        assert (fake.checksums(), fake.label) == (there, "r/0/1")
        await engine.aclose()


@pytest.mark.parametrize("kind", [VllmFake, SglangFake])
@pytest.mark.parametrize("labels", [True, False])
async def test_a_server_that_is_away_is_awaited_and_given_its_weights(
    kind: type[ServedFake], labels: bool, folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    async with kind(load_model(folder), labels=labels) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        await engine.generate(ask())
        there = fake.checksums()
    with pytest.raises(InfrastructureError, match=r"did not answer|stream"):
        await engine.generate(ask())
    waiting = asyncio.create_task(engine.generate(ask()))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    async with kind(load_model(folder), labels=labels, port=fake.port) as again:
        assert again.checksums() != there
        done = await waiting
        assert (done.versions[0].step, len(done.token_ids_T)) == (1, 12)
        assert again.checksums() == there
        await engine.aclose()


async def test_weights_lost_under_way_are_noticed_when_others_are_loaded(
    folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    """The label of the new weights must not hide that the tokens before came from others."""
    async with VllmFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        restart(fake, folder)
        task = asyncio.create_task(engine.generate(ask(new=60)))
        while engine.generated_tokens < 3:
            await asyncio.sleep(0)
        await engine.load_weights(version(2), dict(make_loaded(0).model.named_parameters()))
        with pytest.raises(InfrastructureError, match="were lost"):
            await task
        assert (await engine.generate(ask("t"))).versions[0].step == 2
        await engine.aclose()


def test_salts_tell_weights_apart_and_are_taken_by_servers() -> None:
    other_run = WeightsVersion(run="team/agent@2", incarnation=0, step=0)
    later = WeightsVersion(run="r", incarnation=1, step=0)
    salts = {salt_of(version(0), 0), salt_of(version(0), 1), salt_of(other_run, 0), salt_of(later, 0)}
    assert len(salts) == 4
    assert salt_of(version(7), 1) == salt_of(version(9), 1)  # the weights that the cache began with, not those of now
    assert all(salt.isalnum() and len(salt) <= 128 for salt in salts)


async def test_check_sums_of_nothing_say_nothing(
    folder: Path, make_loaded: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's CPU build packs its layers and sums no bytes of them: training those alone is no lost publication."""
    untied_copy(folder, folder.parent / "untied")
    async with VllmFake(load_model(folder.parent / "untied")) as fake:
        sums = {"embed": "1", "layer": hashlib.sha256().hexdigest(), "dp0:lm_head.weight": "2"}
        monkeypatch.setattr(fake, "checksums", lambda: sums)
        engine = client(fake, folder)
        for step in (0, 1):
            await engine.load_weights(version(step), dict(make_loaded(step).model.named_parameters()))
        assert (await engine.generate(ask())).versions[0].step == 1
        await engine.aclose()


async def test_a_packed_head_that_stays_as_it_was_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's CPU build with tied embeddings: tokens after an update would come from the new body and the old head."""
    async with VllmFake(load_model(folder)) as fake:
        monkeypatch.setattr(fake, "checksums", lambda: {"embed": "1", "layer": hashlib.sha256().hexdigest()})
        engine = client(fake, folder)
        with pytest.raises(InputError, match="keeps the output head that it started with") as caught:
            await engine.connect()
        assert "flightschool.engines.served.export" in caught.value.mend
        await engine.aclose()


def test_an_untied_copy_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    untied_copy(folder, tmp_path / "untied")
    before, after = load_model(folder), load_model(tmp_path / "untied")
    assert (before.config.tied_embeddings, after.config.tied_embeddings) == (True, False)
    tokens = torch.tensor(PROMPT)
    rows = []
    for loaded in (before, after):
        with torch.no_grad():
            hidden = loaded.model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
            rows.append(loaded.model.logits(hidden))
    assert torch.equal(*rows)


async def test_an_untied_server_is_published_to_untied(
    folder: Path, tmp_path: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    untied_copy(folder, tmp_path / "untied")
    async with VllmFake(load_model(tmp_path / "untied")) as fake:
        assert "lm_head.weight" in fake.checksums()
        engine = client(fake, folder)
        await engine.connect()
        state = dict(make_loaded(1).model.named_parameters())
        await engine.load_weights(version(1), state)
        told = fake.checksums()
        assert told["lm_head.weight"] == told["model.embed_tokens.weight"]
        assert told["lm_head.weight"] == digest(state["model.embed_tokens.weight"].detach().numpy().tobytes())
        await engine.aclose()


async def test_without_labels_weights_are_published_again_after_a_broken_stream(
    folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    up = True
    async with VllmFake(load_model(folder), labels=False, distort=lambda event: event if up else None) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        there = restart(fake, folder)
        up = False
        with pytest.raises(InfrastructureError):
            await engine.generate(ask())
        up = True
        await engine.generate(ask())
        assert fake.checksums() == there
        await engine.aclose()


async def test_a_server_that_refuses_the_weights_serves_nothing_known(
    folder: Path, make_loaded: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise InputError("no such tensor", where=str(path))

    async with SglangFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        monkeypatch.setattr(fake, "load", refuse)
        with pytest.raises(InfrastructureError, match="did not load the weights"):
            await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        with pytest.raises(InfrastructureError, match="what the server serves is not known"):
            await engine.generate(ask())
        await engine.aclose()


@pytest.mark.parametrize("kind", [VllmFake, SglangFake])
async def test_published_weights_are_verified_by_label_and_check_sums(
    kind: type[ServedFake], folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    async with kind(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.connect()
        for step in (0, 1, 1, 0):  # step 0 has the weights that the server began with: no false alarm
            state = dict(make_loaded(step).model.named_parameters())
            await engine.load_weights(version(step), state)
        assert fake.label == "r/0/0"
        assert len(list((folder.parent / "published").iterdir())) == 2
        await engine.aclose()


@pytest.mark.parametrize("keep_cache", [True, False])
async def test_sglang_is_told_how_to_load(
    keep_cache: bool, folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    """A server that was begun with dummy weights would else draw new ones, and its check sums would change."""
    async with SglangFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        state = dict(make_loaded(1).model.named_parameters())
        await engine.load_weights(version(1), state, keep_cache=keep_cache)
        ((path, body),) = [row for row in fake.requests if "update_weights" in row[0]]
        assert path == "POST /update_weights_from_disk"
        told = {key: value for key, value in body.items() if key != "model_path"}
        assert told == {
            "load_format": "auto",
            "weight_version": "r/0/1",
            "flush_cache": not keep_cache,
            "abort_all_requests": True,
        }
        await engine.aclose()


@pytest.mark.parametrize("kind", [VllmFake, SglangFake])
async def test_a_server_that_goes_on_with_old_weights_is_found_out(
    kind: type[ServedFake],
    folder: Path,
    make_loaded: Callable[..., LoadedModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kind(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(0), dict(make_loaded(0).model.named_parameters()))
        monkeypatch.setattr(fake, "load", lambda path: None)  # says yes, does nothing
        with pytest.raises(InfrastructureError, match="did not change"):
            await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        with pytest.raises(InfrastructureError, match="what the server serves is not known"):
            await engine.generate(ask())
        await engine.aclose()


async def test_another_trainer_at_the_same_server_is_found_out(
    folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    async with SglangFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        fake.label = "other/0/7"
        with pytest.raises(InfrastructureError, match="'other/0/7'"):
            await engine.generate(ask())
        await engine.aclose()


async def test_servers_without_labels_and_check_sums_still_update(
    folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    for kind in (VllmFake, SglangFake):
        async with kind(load_model(folder), labels=False) as fake:
            engine = client(fake, folder)
            for step in (0, 1):
                await engine.load_weights(version(step), dict(make_loaded(step).model.named_parameters()))
            assert (await engine.generate(ask())).versions[0].step == 1
            await engine.aclose()


async def test_a_full_disk_is_told_and_nothing_half_written_stays(
    folder: Path, make_loaded: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async with VllmFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        monkeypatch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(InfrastructureError, match="No space left") as caught:
            await engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters()))
        assert "engine.publish_to" in caught.value.mend
        assert not list((folder.parent / "published").iterdir())
        assert (await engine.generate(ask())).versions[0].step == 0
        await engine.aclose()


async def test_requests_wait_while_weights_are_loaded_and_then_go_on(
    folder: Path, make_loaded: Callable[..., LoadedModel]
) -> None:
    async with VllmFake(load_model(folder)) as fake:
        engine = client(fake, folder)
        tasks = [asyncio.create_task(engine.generate(ask(f"s{i}", new=60))) for i in range(4)]
        while engine.generated_tokens < 8:
            await asyncio.sleep(0)
        loading = asyncio.create_task(engine.load_weights(version(1), dict(make_loaded(1).model.named_parameters())))
        late = asyncio.create_task(engine.generate(ask("late")))
        await loading
        for done in await asyncio.gather(*tasks):
            assert len(done.token_ids_T) == 60
            assert [run.step for run in done.versions] in ([0, 1], [1])
        assert (await late).versions[-1].step == 1
        paths = [path.split("?")[0] for path, _ in fake.requests]
        assert paths.index("POST /pause") < paths.index("POST /collective_rpc") < paths.index("POST /resume")
        await engine.aclose()
