"""Weights of served engines: published, verified, lost and given again; what is served is never unknown."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.engines.served import PROMPT, ask, client, version

from flightschool.digest import digest
from flightschool.engines import CausalAttention
from flightschool.engines.folders import LoadedModel, load_model
from flightschool.engines.served.export import untied_copy
from flightschool.engines.served.wire import salt_of
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import WeightsVersion
from flightschool.testing.served import ServedFake, SglangFake, VllmFake


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
