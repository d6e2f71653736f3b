"""Runs command lines as the console script does, and reads what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from flightschool.cli import main
from flightschool.environments.registry import _desk as build_desk
from flightschool.protocols import Environment


class Spoken:
    """What one command line gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> dict[str, Any]:
        """Stdout, which must be exactly one JSON object of schema 1."""
        value: dict[str, Any] = json.loads(self.out)
        assert value["schema"] == 1
        assert self.out.count("\n") == 1
        return value

    @property
    def error(self) -> dict[str, str]:
        """The error of the contract."""
        error: dict[str, str] = self.json["error"]
        assert set(error) == {"what", "where", "expected", "mend"}
        assert error["what"]
        return error


Run = Callable[..., Spoken]


@pytest.fixture(autouse=True)
def built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in desk is built once for all these tests, not once a command line: it never changes."""
    monkeypatch.setattr("flightschool.environments.registry._desk", lambda _, reference: _desk(reference))


@cache
def _desk(reference: str) -> Environment:
    return build_desk(dict(parse_qsl(reference.partition("?")[2])), reference)


@pytest.fixture(autouse=True)
def own_keys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of sealed holdouts lie outside the workspace, and not with the user's own."""
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path_factory.mktemp("keys")))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def spoken(*words: str) -> Spoken:
        capsys.readouterr()
        code = main(list(words))
        captured = capsys.readouterr()
        return Spoken(code, captured.out, captured.err)

    return spoken


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A fresh workspace that is the working directory."""
    folder = tmp_path / "space"
    assert run("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder
