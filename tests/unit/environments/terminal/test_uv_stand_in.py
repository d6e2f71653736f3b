"""What stands in for uv: how it reads words, and versions as the standard's own library does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from flightschool.environments.terminal import fetches_of_script
from flightschool.environments.terminal.fetching import PackageRequest
from flightschool.environments.terminal.trees.presence import Presence
from flightschool.environments.terminal.uv_stand_in import meets, parse

PACKAGES = {"pytest": "8.4.1", "pytest-json-ctrf": "0.3.5"}
HERE = Presence(apt={"curl": "7"}, pip=PACKAGES, python="3.12.4", interpreter="/usr/bin/python3")
CURL = "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\n. $HOME/.local/bin/env\n"


@pytest.mark.parametrize(
    ("words", "verb", "wants", "command"),
    [
        ("uvx -p 3.12 -w pytest==8.4.1 pytest -rA x", "run", ["pytest", "pytest==8.4.1"], ["pytest", "-rA", "x"]),
        ("uvx pytest@8.4.1 -q", "run", ["pytest==8.4.1"], ["pytest", "-q"]),
        ("uvx --from pytest==8.4.1 py.test", "run", ["pytest==8.4.1"], ["py.test"]),
        ("uv tool run --with=a,b>=2 ruff", "run", ["ruff", "a", "b>=2"], ["ruff"]),
        ("uv run --no-project --with a python -m b", "run", ["a"], ["python", "-m", "b"]),
        ("uv run -m pytest x", "run", [], ["python", "-m", "pytest", "x"]),
        ("uv run pytest x", "run", ["pytest"], ["pytest", "x"]),
        ("uv pip install --system a b==1", "pip install", ["a", "b==1"], []),
        ("uv -q add pytest==8.4.1", "add", ["pytest==8.4.1"], []),
        ("uv venv .v", "venv", [], [".v"]),
        ("uv init", "init", [], []),
    ],
)
def test_words_are_read(words: str, verb: str, wants: list[str], command: list[str]) -> None:
    program, *rest = words.split()
    ask = parse(program, rest)
    assert (ask.problem, ask.verb, ask.wants, ask.command) == ("", verb, wants, command)


@pytest.mark.parametrize(
    "words",
    [
        "uv sync", "uv tool install ruff", "uv run x.py", "uvx", "uv run", "uvx -p pypy pytest", "uvx --index x pytest",
        "uvx pytest[all]", "uvx git+https://x/y", "uvx --exclude-newer 2020 pytest", "uv pip install -e .",
        "uv pip sync r.txt", "uv --directory x run pytest", "uvx pytest@latest[x]", "uv python install 3.12",
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_stood_in_for(words: str) -> None:
    program, *rest = words.split()
    assert parse(program, rest).problem


@pytest.mark.parametrize(
    ("script", "met"),
    [
        (CURL + "uvx -p 3.12 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest --ctrf /c.json /t.py -rA\n", True),
        (CURL + "uvx -p 3.13 -w pytest==8.4.1 pytest /tests/t.py\n", False),
        (CURL + "uvx -w pytest==8.4.2 pytest /tests/t.py\n", False),
        (CURL + "uvx -w pytest==8.4.1 -w numpy pytest /tests/t.py\n", False),
        (CURL + "uv venv .t && source .t/bin/activate && uv pip install pytest==8.4.1 && uv run pytest /tests\n", True),
        (CURL + "uv init\nuv add pytest==8.4.1\nuv run pytest /tests/t.py -rA\n", True),
        (CURL + "uv run pytest /tests/t.py -rA\n", False),
        (CURL + "uv run --no-project --with pytest pytest /tests/t.py -rA\n", True),
        (CURL + "uv sync && uv run pytest\n", False),
        ("wget -qO- https://astral.sh/uv/install.sh | sh\n", False),  # no wget there
        ("curl -LsSf https://astral.sh/uv/install.sh -o i.sh\n", False),
        ("curl -LsSf https://astral.sh/uv/install.sh https://example.org/x | sh\n", False),
        ("curl -LsSf https://astral.sh.example.org/uv/install.sh | sh\n", False),
        ("curl -LsSf https://astral.sh/uv/install.sh?x=https://example.org | sh\n", False),
        ("pip install uv && uvx pytest\n", True),
        ("pip install uv==0.9 && uvx pytest\n", False),
    ],
)
def test_exactly_what_is_asked_must_be_there(script: str, met: bool) -> None:
    fetches = fetches_of_script(script, {})
    assert fetches
    assert all(one.packages and not one.project and all(map(HERE, one.packages)) for one in fetches) is met


def test_without_python_there_is_no_uv() -> None:
    nothing = Presence(apt={"curl": "7"}, pip={})
    assert not nothing(PackageRequest(manager="uv", name="curl"))
    assert not nothing(PackageRequest(manager="uv", name="uv"))


VERSIONS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
OPERATORS = st.sampled_from(["==", "!=", ">=", "<=", ">", "<"])


@given(VERSIONS, OPERATORS, VERSIONS)
def test_versions_compare_as_the_standard_says(version: str, operator: str, other: str) -> None:
    assert meets(version, operator + other) == SpecifierSet(operator + other).contains(version)


@given(VERSIONS, st.sampled_from(["==", "!="]), VERSIONS)
def test_prefixes_match_as_the_standard_says(version: str, operator: str, other: str) -> None:
    assert meets(version, f"{operator}{other}.*") == SpecifierSet(f"{operator}{other}.*").contains(version)


@given(VERSIONS, st.lists(st.integers(0, 12), min_size=2, max_size=4).map(lambda parts: ".".join(map(str, parts))))
def test_compatible_releases_are_as_the_standard_says(version: str, other: str) -> None:
    assert meets(version, f"~={other}") == SpecifierSet(f"~={other}").contains(version)


@pytest.mark.parametrize("specifier", ["==1.0rc1", ">=1.dev0", "==1.0+local", "=1", "x", "==*", "~=1"])
def test_what_is_more_than_numbers_is_not_met(specifier: str) -> None:
    assert not meets("1.0", specifier)
