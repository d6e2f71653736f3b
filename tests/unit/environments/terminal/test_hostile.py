"""Task folders that are made to hurt: each is refused or read in little time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flightschool.environments.terminal import (
    RewardMalformed,
    fetches_of_script,
    plan_build,
    read_folder,
    read_reward,
)
from flightschool.environments.terminal.ignoring import IgnoreRules
from flightschool.environments.terminal.yaml_text import load_yaml
from flightschool.errors import InputError

Write = Callable[[str, Mapping[str, str]], Path]

BASE = {"task.toml": "", "instruction.md": "Do it.\n", "tests/test.sh": "true\n"}
PATIENCE_S = 20.0
"""What each of these does without its defence takes hours, or all memory; with it, a fraction of a second."""


@pytest.fixture(autouse=True)
def patience() -> object:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < PATIENCE_S


def dockerfile(write: Write, text: str, ignore: str = "") -> Path:
    return write("one", {**BASE, "environment/Dockerfile": text, "environment/.dockerignore": ignore})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("FROM a\nENV A=xxxxxxxx\n" + "ENV A=$A$A\n" * 64, "variables grow"),
        ("FROM a\nENV A=" + "x" * 1000 + "\nENV B=" + "$A" * 100_000 + "\n", "variables grow"),
        ("FROM a\nENV A=" + "x" * 1000 + "\nCOPY <<E /f\n" + "$A" * 100_000 + "\nE\n", "variables grow"),
        ("FROM a\n" + "USER b\n" * 5000, "more than 2000 instructions"),
        ("FROM a\nENV " + " ".join(f"V{n}=" for n in range(3000)) + "\n", "more than 2000 variables"),
        ("FROM a\nENV A=" + "a" * 5000 + " \nENV B=${A#*a*a*a*b}\n", "a pattern on a value"),
        ("FROM a\nENV A=" + "a" * 500 + " \nENV B=${A/*a*a*a*a*b/}\n", "more than one \\*"),
        ("FROM a\nRUN <<E\n" + "x\n" * 100_000, "heredoc 'E' has no end"),
    ],
)
def test_growing_files_are_refused(write: Write, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        plan_build(read_folder(dockerfile(write, text)))


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN " + "--mount=type=cache " * 50_000 + "true\n",
        "FROM a\nENV A=" + "a" * 2000 + "\nENV B=${A#" + "*a" * 40 + "*b}\n",
        "FROM a\nCOPY " + "*a" * 40 + "*b /x/\n",
        "FROM a\nRUN pip install " + "a" * 1_000_000 + "!\n",
        "FROM a\nRUN apt-get install " + "a" * 1_000_000 + "_\n",
        "FROM a\nRUN " + "$(" * 200_000 + "\n",
        "FROM a\nRUN echo " + "`a" * 200_000 + "\n",
        "FROM a\nRUN " + "{" * 100_000 + "\n",
        "FROM a\nRUN " + "[" * 100_000 + "\n",
        "FROM a\nRUN x \\\n" + "# c\n" * 200_000 + "y\n",
    ],
)
def test_long_lines_are_read(write: Write, text: str) -> None:
    folder = dockerfile(write, text)
    (folder / "environment" / ("a" * 250)).write_text("", encoding="utf-8")
    assert plan_build(read_folder(folder)).base == "a"


def test_patterns_with_many_stars_take_no_time() -> None:
    name = "a" * 250
    assert not IgnoreRules("*a" * 60 + "*b")(name)
    assert IgnoreRules("*a" * 60 + "*")(name)
    assert not IgnoreRules("/".join(["**"] * 60) + "/b")("/".join(["a"] * 500))


def test_deep_and_aliased_settings_are_refused(write: Write) -> None:
    with pytest.raises(InputError, match="not valid TOML"):
        read_folder(write("toml", {**BASE, "environment/Dockerfile": "FROM a\n", "task.toml": "a = " + "[" * 100_000}))
    laughs = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9))
    for text in ("a: " + "[" * 100_000, "- " * 10_000, laughs):
        with pytest.raises(InputError, match=r"too deep|an alias|not valid YAML"):
            load_yaml(text, "task.yaml")


def test_deep_folders_are_refused(write: Write) -> None:
    folder = write("deep", {**BASE, "environment/Dockerfile": "FROM a\n", "a/" * 80 + "f": ""})
    with pytest.raises(InputError, match="more than 64 deep"):
        read_folder(folder)


def test_numbers_beyond_json_become_text(write: Write) -> None:
    toml = "[metadata]\nlarge = 99999999999999999999\nodd = nan\nday = 2026-01-02\n"
    task = read_folder(write("x", {**BASE, "environment/Dockerfile": "FROM a\n", "task.toml": toml}))
    assert task.metadata == {"large": "99999999999999999999", "odd": "nan", "day": "2026-01-02"}


def test_rewards_made_to_hurt() -> None:
    for text in ("[" * 60_000, '{"reward":' * 6_000, '{"reward": ' + "9" * 60_000 + "}"):
        assert isinstance(read_reward({"reward.json": text.encode()}), RewardMalformed)


def test_scripts_made_to_hurt() -> None:
    assert fetches_of_script("bash -c '" * 2000) == []
    assert fetches_of_script("sudo " * 20_000 + "curl http://x.org")[0].tool == "curl"
