"""Teachers: the same numbers from a folder and from servers of both kinds, and one error for each fault."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.foreign import foreign_folder

from flightschool.config import parse_settings
from flightschool.engines import CausalAttention
from flightschool.engines.folders import load_model
from flightschool.engines.scoring import Scorer, TeacherSettings, check_order, check_teacher, open_scorer
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ConfigError, InfrastructureError, InputError, TokenContractError
from flightschool.testing.served import Event, ServedFake, SglangFake, VllmFake

SEQUENCE = tuple(range(20, 40))
START = 7
KINDS: dict[str, type[ServedFake]] = {"vllm": VllmFake, "sglang": SglangFake}


def plain(folder: Path) -> list[float]:
    loaded = load_model(folder)
    tokens = torch.tensor(SEQUENCE)
    with torch.no_grad():
        hidden = loaded.model(tokens, torch.arange(len(SEQUENCE)), CausalAttention([len(SEQUENCE)]))
        log = torch.log_softmax(loaded.model.logits(hidden), dim=-1)
    return [float(log[place - 1, SEQUENCE[place]]) for place in range(START, len(SEQUENCE))]


@asynccontextmanager
async def served(kind: str, folder: Path, **options: Any) -> AsyncIterator[tuple[ServedFake, Scorer]]:
    async with KINDS[kind](load_model(folder), **options) as fake:
        scorer = open_scorer(teacher(kind, fake.url))
        try:
            yield fake, scorer
        finally:
            await scorer.aclose()


def teacher(kind: str, url: str, **changes: Any) -> TeacherSettings:
    return TeacherSettings.model_validate({"kind": kind, "url": url, "timeout_s": 5.0} | changes)


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_server_scores_the_very_tokens(kind: str, folder: Path) -> None:
    async with served(kind, folder) as (fake, scorer):
        assert await scorer.logprobs(SEQUENCE, START) == pytest.approx(plain(folder), abs=1e-5)
        await check_order(scorer, ChatTokenizer.from_folder(folder))
    asked = [body for route, body in fake.requests if route.startswith("POST /") and "tokenize" not in route]
    assert asked[0].get("prompt", asked[0].get("input_ids")) == list(SEQUENCE)


async def test_a_folder_scores_the_very_tokens(folder: Path) -> None:
    scorer = open_scorer(TeacherSettings(model=str(folder)))
    assert await scorer.logprobs(SEQUENCE, START) == pytest.approx(plain(folder), abs=1e-6)
    await check_order(scorer, ChatTokenizer.from_folder(folder))
    with pytest.raises(InputError, match="token 4096 is none of the teacher's"):
        await scorer.logprobs((1, 4096), 1)


async def test_a_folder_that_only_transformers_knows_scores_as_well(folder: Path) -> None:
    from flightschool.engines.scoring import local

    own = open_scorer(TeacherSettings(model=str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "local_kind", lambda _: "hf")
        generic = open_scorer(TeacherSettings(model=str(folder)))
    found = [await scorer.logprobs(SEQUENCE, START) for scorer in (own, generic)]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


async def test_a_long_sequence_goes_through_a_foreign_head_in_pieces(folder: Path, tmp_path: Path) -> None:
    from flightschool.engines import load_hf_model
    from flightschool.engines.scoring import local

    foreign = foreign_folder("gpt2", folder, tmp_path / "foreign")
    with torch.no_grad():
        logits = load_hf_model(foreign).model(input_ids=torch.tensor([SEQUENCE])).logits[0]
    wanted = [float(torch.log_softmax(logits[at - 1], 0)[SEQUENCE[at]]) for at in range(START, len(SEQUENCE))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_ROWS", 5)
        scorer = open_scorer(TeacherSettings(model=str(foreign)))
        sizes: list[int] = []

        def told(module: torch.nn.Module, _: Any, made: Any) -> None:
            if isinstance(module, torch.nn.Linear) and module.out_features == logits.shape[1]:
                sizes.append(made.shape[-2])

        hook = torch.nn.modules.module.register_module_forward_hook(told)
        try:
            found = await scorer.logprobs(SEQUENCE, START)
        finally:
            hook.remove()
    assert found == pytest.approx(wanted, abs=1e-5)
    assert sizes == [5, 5, 3]


async def test_a_token_that_is_ruled_out_has_a_number(folder: Path) -> None:
    def rule_out(event: Event) -> Event:
        event["choices"][0]["prompt_logprobs"][-1][str(SEQUENCE[-1])]["logprob"] = -9999.0
        return event

    async with served("vllm", folder, distort=rule_out) as (_, scorer):
        assert (await scorer.logprobs(SEQUENCE, START))[-1] == -9999.0


def vllm_row(change: Callable[[Event], Any]) -> Callable[[Event], Event]:
    def distort(event: Event) -> Event:
        change(event["choices"][0])
        return event

    return distort


def sglang_rows(change: Callable[[Event], Any]) -> Callable[[Event], Event]:
    def distort(event: Event) -> Event:
        change(event["meta_info"])
        return event

    return distort


LAST = str(SEQUENCE[-1])
LIES: dict[str, tuple[str, Callable[[Event], Event], str]] = {
    "vllm: none": ("vllm", vllm_row(lambda c: c.pop("prompt_logprobs")), "no prompt_logprobs for 20 tokens"),
    "vllm: too few": ("vllm", vllm_row(lambda c: c["prompt_logprobs"].pop()), "19 prompt_logprobs for 20"),
    "vllm: of other tokens": (
        "vllm",
        vllm_row(lambda c: c["prompt_logprobs"].reverse()),
        "missing from its place in the prompt",
    ),
    "vllm: null": ("vllm", vllm_row(lambda c: c["prompt_logprobs"][-1][LAST].update(logprob=None)), "missing: None"),
    "vllm: NaN": ("vllm", vllm_row(lambda c: c["prompt_logprobs"][-1][LAST].update(logprob=float("nan"))), "is nan"),
    "vllm: positive": ("vllm", vllm_row(lambda c: c["prompt_logprobs"][-1][LAST].update(logprob=0.5)), r"is 0\.5"),
    "sglang: none": ("sglang", sglang_rows(lambda m: m.clear()), "no input_token_logprobs for 13 tokens"),
    "sglang: of other tokens": (
        "sglang",
        sglang_rows(lambda m: m["input_token_logprobs"].pop()),
        "of other tokens",
    ),
    "sglang: null": (
        "sglang",
        sglang_rows(lambda m: m["input_token_logprobs"][-1].__setitem__(0, None)),
        "missing: None",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_no_log_probability_of_the_token_raises_by_name(lie: str, folder: Path) -> None:
    kind, distort, what = LIES[lie]
    async with served(kind, folder, distort=distort) as (_, scorer):
        with pytest.raises(TokenContractError, match=what) as caught:
            await scorer.logprobs(SEQUENCE, START)
    assert kind in caught.value.where


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_server_that_fails_or_is_gone_is_an_infrastructure_failure(kind: str, folder: Path) -> None:
    async with served(kind, folder, distort=lambda _: None) as (_, scorer):
        with pytest.raises(InfrastructureError, match="answered 500"):
            await scorer.logprobs(SEQUENCE, START)
    with pytest.raises(InfrastructureError, match="did not answer") as caught:
        await scorer.logprobs(SEQUENCE, START)
    await scorer.aclose()
    assert "teacher.url" in caught.value.mend


# ------------------------------------------------------------------------------------------------ before a run


def other_vocabulary(folder: Path, out: Path) -> Path:
    """The same model whose tokenizer swaps two ids."""
    out.mkdir()
    for path in folder.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    table = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = table["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.__getitem__)[40:42]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (out / "tokenizer.json").write_text(json.dumps(table))
    return out


async def checked(settings: TeacherSettings, student: Path, longest: int = 64) -> None:
    """``check_teacher`` runs its own event loop."""
    await asyncio.to_thread(check_teacher, settings, student, longest)


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_server_is_looked_at_before_anything_is_loaded(kind: str, folder: Path, tmp_path: Path) -> None:
    async with served(kind, folder) as (fake, _):
        settings = teacher(kind, fake.url)
        await checked(settings, folder)
        with pytest.raises(ConfigError, match="encodes the same text with other token ids"):
            await checked(settings, other_vocabulary(folder, tmp_path / "other"))
        limit = fake.engine.max_context
        with pytest.raises(ConfigError, match=f"takes {limit} tokens, episodes may have {limit + 1}"):
            await checked(settings, folder, limit)
    with pytest.raises(InfrastructureError, match="did not answer"):
        await checked(settings, folder)


async def test_a_server_without_tokenize_needs_its_tokenizer_at_hand(folder: Path, tmp_path: Path) -> None:
    other = other_vocabulary(folder, tmp_path / "other")
    async with served("sglang", folder, tokenizes=False) as (fake, _):
        with pytest.raises(ConfigError, match="does not say how it encodes text") as caught:
            await checked(teacher("sglang", fake.url), folder)
        assert "teacher.tokenizer" in caught.value.mend
        await checked(teacher("sglang", fake.url, tokenizer=folder), folder)
        with pytest.raises(ConfigError, match="has another vocabulary"):
            await checked(teacher("sglang", fake.url, tokenizer=other), folder)


def test_a_folder_is_looked_at_without_its_weights(folder: Path, tmp_path: Path) -> None:
    settings = TeacherSettings(model=str(folder))
    check_teacher(settings, folder, 64)
    context = load_model(folder).config.max_context
    other = other_vocabulary(folder, tmp_path / "other")
    with pytest.raises(ConfigError, match="has another vocabulary"):
        check_teacher(settings, other, 64)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    check_teacher(settings, folder, context)
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(table | {"max_position_embeddings": 32}))
    with pytest.raises(ConfigError, match="takes 32 tokens, episodes may have 64"):
        check_teacher(settings, other_vocabulary(other, tmp_path / "same"), 64)
    (folder / "config.json").write_text(json.dumps(table | {"vocab_size": 10}))
    with pytest.raises(ConfigError, match="has 10 rows"):
        check_teacher(settings, tmp_path / "same", 64)


class Twisted:
    """A scorer whose values something was done to."""

    name = "twisted"

    def __init__(self, inner: Scorer, twist: Callable[[tuple[float, ...], int], tuple[float, ...]]) -> None:
        self._inner, self._twist = inner, twist

    async def logprobs(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        return self._twist(await self._inner.logprobs(token_ids_T, start), start)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("twist", "what"),
    [
        (lambda values, _: values[1:], "values for"),
        (lambda values, _: (0.0,) * len(values), "equal"),
        (lambda values, _: values[::-1], "what stands behind"),
        (lambda values, start: values if start == 1 else values[::-1], "where the scoring begins"),
    ],
)
async def test_values_out_of_order_are_noticed(
    twist: Callable[[tuple[float, ...], int], tuple[float, ...]], what: str, folder: Path
) -> None:
    scorer = Twisted(open_scorer(TeacherSettings(model=str(folder))), twist)
    with pytest.raises(TokenContractError, match=what):
        await check_order(scorer, ChatTokenizer.from_folder(folder))


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"kind": "vllm"}, "a url with kind"),
        ({"kind": "vllm", "url": "http://me@host:1"}, "a url with kind"),
        ({}, "a model with kind"),
        ({"model": "x", "url": "http://127.0.0.1:1"}, "no url"),
        ({"kind": "tgi", "url": "http://127.0.0.1:1"}, "kind"),
        ({"model": "x", "modle": "y"}, "modle"),
    ],
)
def test_a_teacher_that_cannot_be_found_is_refused(table: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(copy.deepcopy(table), TeacherSettings, where="x.toml")
    assert word in str(caught.value)


def test_a_key_that_is_not_there_is_told_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY") as caught:
        check_teacher(teacher("vllm", "http://127.0.0.1:9", key_env="NO_SUCH_KEY"), folder, 8)
    assert caught.value.where == "teacher.key_env"
