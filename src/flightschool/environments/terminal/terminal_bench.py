"""Terminal-Bench 1 task folders: ``task.yaml``, ``Dockerfile``, ``run-tests.sh``, ``tests/``, ``solution.sh``.

The settings are translated into the table that Harbor would hold, so that everything behind the readers knows one kind
of task. The verdict is what pytest printed, since the format knows no reward file. The whole folder is the build
context, tests and solution included: a Dockerfile that copies all of it shows them to the agent, which is for the audit
to find, not for the reader to hide.
"""

from __future__ import annotations

import math

from flightschool.environments.terminal.compose import ComposeFacts, read_compose
from flightschool.environments.terminal.contents import Contents
from flightschool.environments.terminal.harbor import beyond_json, build_task, interpreter
from flightschool.environments.terminal.keystrokes import SOLUTION_KEYS, read_keystrokes, typing_script
from flightschool.environments.terminal.records import Note, Placement, TaskFormat, TerminalTask, VerdictSource
from flightschool.environments.terminal.yaml_text import load_yaml
from flightschool.errors import InputError
from flightschool.records import Json

__all__ = ["SETTINGS_FILES", "read_terminal_bench"]

SETTINGS_FILES = ("task.yaml", "task.yml")
TESTS_TARGET = "/tests"
TEST_SCRIPT = "run-tests.sh"
SOLUTION_SCRIPT = "solution.sh"
SOLUTION_TARGET = "/oracle"
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml")
_OWN_KEYS = frozenset({"instruction", "max_agent_timeout_sec", "max_test_timeout_sec"})


def read_terminal_bench(contents: Contents, task_id: str) -> TerminalTask:
    """Read one folder.

    Raises:
        InputError: a file that the format needs is missing or unreadable, or a value is impossible.
    """
    name = next(name for name in SETTINGS_FILES if contents.is_file(name))
    where = str(contents.root / name)
    table = load_yaml(contents.read_text(name), where)
    if not isinstance(table, dict):
        raise InputError("no table of settings", where=where, expected="keys and values", mend="write task.yaml anew")
    instruction = table.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise InputError(
            "no instruction", where=where, expected="a text under 'instruction'", mend="say what the agent is to do"
        )
    compose_file = next((name for name in COMPOSE_FILES if contents.is_file(name)), "")
    facts = read_compose(contents, compose_file) if compose_file else ComposeFacts()
    solution, oracle, notes = _solution(contents)
    parser = str(table.get("parser_name") or "pytest")
    if parser != "pytest":
        notes += (Note(where=f"{name}: parser_name", what=f"the parser {parser!r} is not read here"),)
    tests, test_command = _tests(contents)
    return build_task(
        contents,
        task_id,
        TaskFormat.TERMINAL_BENCH_1,
        _settings(table, facts, where),
        instruction=instruction,
        environment_dir=facts.context or ".",
        dockerfile=_dockerfile(contents, facts),
        compose_file=compose_file,
        tests_dir="tests" if contents.is_folder("tests") else "",
        solution_dir="",
        tests=tests,
        solution=solution,
        test_command=test_command,
        oracle=oracle,
        verdict_source=VerdictSource.PYTEST_SUMMARY if parser == "pytest" else VerdictSource.UNKNOWN_PARSER,
        notes=notes,
    )


def _settings(table: dict[str, Json], facts: ComposeFacts, where: str) -> dict[str, Json]:
    """The same settings as ``task.toml`` would hold them."""
    agent_s = _seconds(table, "max_agent_timeout_sec", where)
    test_s = _seconds(table, "max_test_timeout_sec", where)
    environment: dict[str, Json] = {}
    if facts.image:
        environment["docker_image"] = facts.image
    if facts.workdir:
        environment["workdir"] = facts.workdir
    variables = {name: value for name, value in facts.environment.items() if "${T_BENCH_" not in value}
    if variables:
        environment["env"] = variables
    settings: dict[str, Json] = {
        "schema_version": "1.4",
        "metadata": _json({key: value for key, value in table.items() if key not in _OWN_KEYS}),
        "agent": {} if agent_s is None else {"timeout_sec": agent_s},
        "verifier": {"env": {"TEST_DIR": TESTS_TARGET}},
        "environment": environment,
    }
    if test_s is not None:
        settings["verifier"]["timeout_sec"] = test_s
    return settings


def _seconds(table: dict[str, Json], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InputError(
            f"wrong value of {key!r}: {value!r}", where=where, expected="seconds above 0", mend=f"correct {key!r}"
        )
    return float(value)


def _json(value: Json) -> Json:
    """YAML to JSON data that TOML can hold too: dates and other scalars become text, nulls are left out."""
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_json(item) for item in value if item is not None]
    return value if isinstance(value, str | bool | int | float) and not beyond_json(value) else str(value)


def _dockerfile(contents: Contents, facts: ComposeFacts) -> str:
    if facts.image:
        return ""
    path = f"{facts.context}/{facts.dockerfile}" if facts.context else facts.dockerfile
    if not path or not contents.is_file(path):
        raise InputError(
            "no environment",
            where=str(contents.root),
            expected="a Dockerfile, or an image in the compose file",
            mend="add one of them",
        )
    return path


def _tests(contents: Contents) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    script = next((path for path in (TEST_SCRIPT, f"tests/{TEST_SCRIPT}") if contents.is_file(path)), "")
    if not script:
        raise InputError("no tests", where=str(contents.root), expected=TEST_SCRIPT, mend="add the script that judges")
    folder = (Placement(source="tests", target=TESTS_TARGET),) if contents.is_folder("tests") else ()
    tests = (*folder, Placement(source=script, target=f"{TESTS_TARGET}/{TEST_SCRIPT}"))
    return tests, (*interpreter(contents, script), f"{TESTS_TARGET}/{TEST_SCRIPT}")


def _solution(contents: Contents) -> tuple[tuple[Placement, ...], tuple[str, ...], tuple[Note, ...]]:
    if contents.is_file(SOLUTION_SCRIPT):
        target = f"{SOLUTION_TARGET}/{SOLUTION_SCRIPT}"
        return (
            (Placement(source=SOLUTION_SCRIPT, target=target),),
            (*interpreter(contents, SOLUTION_SCRIPT), target),
            (),
        )
    if contents.is_file(SOLUTION_KEYS):
        strokes, notes = read_keystrokes(contents.read_text(SOLUTION_KEYS), str(contents.root / SOLUTION_KEYS))
        target = f"{SOLUTION_TARGET}/{SOLUTION_SCRIPT}"
        script = Placement(source=SOLUTION_KEYS, target=target, content=typing_script(strokes))
        return (script,), ("bash", target), notes
    return (), (), (Note(where=SOLUTION_SCRIPT, what="no reference solution is shipped"),)
