from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flightschool.engines.folders import LoadedModel
from flightschool.engines.onboarding import (
    check_ends,
    check_padding,
    check_template,
    check_vocabulary,
    plain_template,
    read_tables,
)
from flightschool.engines.parity import check_parity, own_engine, own_scores
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ModelFolderError
from flightschool.rollouts.onboarding import check_calls

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRIPS_THOUGHTS = (
    "{% for message in messages %}{% set text = message['content'] %}"
    "{% if message['role'] == 'assistant' and not loop.last %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
)
ADDS_A_DATE = "{{ '<|im_start|>system\nToday is ' + strftime_now('%d') + '.<|im_end|>\n' }}" + CHATML


@pytest.mark.parametrize(
    ("template", "passed", "found"),
    [
        (None, True, "none"),
        (CHATML, True, "append-only; renders the tokens that are trained"),
        (STRIPS_THOUGHTS, False, "not append-only: turn 4"),
        (ADDS_A_DATE, False, "append-only, but from token"),
        ("{{ raise_exception('no system turn') }}", False, "cannot be rendered: no system turn"),
        ("{% for %}", False, "cannot be rendered"),
        ("{{ ''.__class__.__mro__ }}", False, "cannot be rendered"),
    ],
)
def test_templates(template: str | None, passed: bool, found: str, tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    table = {} if template is None else {"chat_template": template}
    check = check_template(tmp_path, tokenizer, table)
    assert (check.passed, found in check.found) == (passed, True), check.found
    if not passed and "rendered" not in check.found:
        mended = {"chat_template": check.mend.split("chat_template: ", 1)[1]}
        assert check_template(tmp_path, tokenizer, mended).passed


def test_a_template_file_counts_before_the_table(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(STRIPS_THOUGHTS)
    assert not check_template(tmp_path, tokenizer, {"chat_template": CHATML}).passed


def test_llama_3_s_plain_template_renders_its_turns(make_tokenizer: Callable[..., ChatTokenizer]) -> None:
    special = (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    )
    llama = make_tokenizer(special)
    check = check_template(Path("nowhere"), llama, {"chat_template": plain_template(llama)})
    assert (check.passed, check.found) == (True, "append-only; renders the tokens that are trained")


def test_a_tokenizer_of_another_model_is_told_by_its_size(tokenizer: ChatTokenizer) -> None:
    assert check_vocabulary(tokenizer, 300).passed  # 265 ids
    too_many, too_few = check_vocabulary(tokenizer, 200), check_vocabulary(tokenizer, 151_936)
    assert not too_many.passed
    assert not too_few.passed
    assert too_few.found == "265 ids for 151936 rows"


@pytest.mark.parametrize(
    ("config", "passed"),
    [
        ({"eos_token_id": 2}, True),
        ({"eos_token_id": [0, 2]}, True),
        ({"text_config": {"eos_token_id": 2}}, True),
        ({}, True),
        ({"eos_token_id": 128009}, False),  # another tokenizer's
        ({"eos_token_id": 17}, False),  # a letter
        ({"eos_token_id": 1}, False),  # opens turns, ends none
    ],
)
def test_end_tokens_of_model_and_tokenizer_are_one(
    config: dict[str, Any], passed: bool, tokenizer: ChatTokenizer
) -> None:
    assert check_ends(tokenizer, config).passed is passed


@pytest.mark.parametrize(
    ("config", "table", "passed"),
    [
        ({}, {"pad_token": "<|endoftext|>"}, True),
        ({}, {"pad_token": {"content": "<|endoftext|>"}}, True),
        ({"pad_token_id": 0}, {}, True),
        ({}, {}, False),
        ({}, {"pad_token": "[PAD]"}, False),
        ({"pad_token_id": 9999}, {}, False),
    ],
)
def test_a_padding_token_is_named(
    config: dict[str, Any], table: dict[str, Any], passed: bool, tokenizer: ChatTokenizer
) -> None:
    check = check_padding(tokenizer, config, table)
    assert check.passed is passed
    if not passed:
        assert check.mend == 'add "pad_token": "<|endoftext|>" to tokenizer_config.json'


def test_calls_survive_the_tokenizer_or_it_is_said(
    tokenizer: ChatTokenizer, tokenizer_table: Callable[..., Any]
) -> None:
    assert check_calls(tokenizer).passed
    table = tokenizer_table()
    table["normalizer"] = {"type": "Lowercase"}
    assert not check_calls(ChatTokenizer({"tokenizer.json": json.dumps(table).encode()})).passed


async def test_engine_and_trainer_agree_with_figures(loaded: LoadedModel) -> None:
    check = await check_parity(own_engine(loaded), loaded.tokenizer, own_scores(loaded))
    assert check.passed
    assert "over 96 tokens" in check.found


async def test_an_engine_that_is_off_falls_short(loaded: LoadedModel, make_loaded: Callable[..., LoadedModel]) -> None:
    check = await check_parity(own_engine(loaded), loaded.tokenizer, own_scores(make_loaded(1)))
    assert not check.passed


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_broken_tables_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        read_tables(tmp_path)
