"""``models check`` onboards unknown folders: figures where they are fine, every fault with its mend where not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flightschool.engines import get_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(get_model("tiny"), tmp_path / "model"))


def checks(reply: Any) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in reply.json["checks"]}


def change(path: Path, **fields: object) -> None:
    table = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in (table | fields).items() if value is not None}))


def test_the_shipped_model_is_fine_in_every_respect(run: Callable[..., Any], folder: Path) -> None:
    reply = run("models", "check", str(folder), "--json")
    assert reply.code == 0
    assert (reply.json["engine"], reply.json["model_type"], reply.json["exact"]) == ("torch", "llama", True)
    assert all(item["passed"] for item in checks(reply).values())
    assert set(checks(reply)) == {
        "vocabulary",
        "end of turn",
        "padding token",
        "chat template",
        "tool calls",
        "engine and trainer",
        "routing",
    }
    assert "over 96 tokens" in checks(reply)["engine and trainer"]["found"]


def test_everything_that_is_wrong_is_told_at_once(run: Callable[..., Any], folder: Path) -> None:
    change(folder / "config.json", eos_token_id=900)
    forgets = "{% for message in messages[-2:] %}{{ message['content'] }}{% endfor %}"
    change(folder / "tokenizer_config.json", pad_token=None, chat_template=forgets)
    reply = run("models", "check", str(folder), "--json")
    assert reply.code == 1
    short = {name: item for name, item in checks(reply).items() if not item["passed"]}
    assert set(short) == {"end of turn", "padding token", "chat template"}
    assert all(item["mend"] for item in short.values())
    assert "not append-only" in short["chat template"]["found"]


def test_a_tokenizer_of_another_model_stops_the_check(run: Callable[..., Any], folder: Path) -> None:
    change(folder / "config.json", vocab_size=151936)
    reply = run("models", "check", str(folder), "--json")
    assert (reply.code, reply.json["engine"]) == (1, "none")
    assert checks(reply)["vocabulary"]["found"] == "1024 ids for 151936 rows"


def test_a_folder_that_cannot_be_loaded_is_wrong_input(run: Callable[..., Any], folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    reply = run("models", "check", str(folder), "--json")
    assert reply.code == 2
    assert "weights are missing" in reply.json["error"]["what"]
