"""Harbor task folders: ``task.toml``, ``instruction.md``, ``environment/``, ``tests/``, ``solution/``, ``steps/``."""

from __future__ import annotations

import datetime
import math
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

from flightschool.environments.terminal.contents import Contents
from flightschool.environments.terminal.harbor_settings import (
    AgentTable,
    HarborSettings,
    StepSettings,
    VerifierTable,
    parse_harbor,
    unknown_keys,
)
from flightschool.environments.terminal.records import (
    Limits,
    Network,
    Note,
    Placement,
    Resources,
    TaskFormat,
    TaskStep,
    TerminalTask,
    VerdictSource,
    VerifierMode,
)
from flightschool.errors import ConfigError, InputError
from flightschool.records import Json

__all__ = ["SETTINGS_FILE", "beyond_json", "build_task", "interpreter", "read_harbor", "settings_fields", "step_fields"]

SETTINGS_FILE = "task.toml"
INSTRUCTION = "instruction.md"
TESTS_TARGET = "/tests"
SOLUTION_TARGET = "/solution"
TEST_SCRIPT = "test.sh"
SOLUTION_SCRIPT = "solve.sh"
WINDOWS_SCRIPTS = ("solve.ps1", "solve.cmd", "solve.bat")
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml")


def read_harbor(contents: Contents, task_id: str) -> TerminalTask:
    """Read one folder.

    Raises:
        InputError: a file that the format needs is missing or unreadable, or a link leads out of the folder.
        ConfigError: ``task.toml`` holds an impossible value.
    """
    where = str(contents.root / SETTINGS_FILE)
    try:
        table = _plain(tomllib.loads(contents.read_text(SETTINGS_FILE)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"not valid TOML: {error}", where=where, expected="TOML 1.0", mend="mend the line named above"
        ) from None
    settings = parse_harbor(table, where)
    if settings.steps or contents.is_folder("steps"):
        return _multi_step(contents, task_id, table, settings)
    tests, solution = _placements(contents, "tests", TESTS_TARGET), _placements(contents, "solution", SOLUTION_TARGET)
    return build_task(
        contents,
        task_id,
        TaskFormat.HARBOR,
        table,
        instruction=_instruction(contents, INSTRUCTION),
        environment_dir="environment",
        dockerfile=_dockerfile(contents, settings),
        compose_file=_compose_file(contents),
        tests_dir="tests",
        solution_dir="solution" if solution else "",
        tests=tests,
        solution=solution,
        test_command=_test_command(contents, tests),
        oracle=_oracle(contents, solution),
        notes=_solution_notes(contents, "solution"),
    )


def build_task(
    contents: Contents, task_id: str, format_: TaskFormat, table: dict[str, Json], **files: Any
) -> TerminalTask:
    """A task of its settings table and of the fields that come from files (``files``, checked by the record's type)."""
    settings = parse_harbor(table, str(contents.root / SETTINGS_FILE))
    notes = tuple(
        Note(where=key, what=f"unknown key {key!r}" + (f", perhaps {near!r} was meant" if near else ""))
        for key, near in unknown_keys(settings)
    )
    extra_notes = tuple(files.pop("notes", ()))
    return TerminalTask(
        id=task_id,
        folder=str(contents.root),
        format=format_,
        settings=table,
        digest=contents.digest(),
        notes=notes + _unread(settings) + extra_notes,
        **{"verdict_source": VerdictSource.REWARD_FILE, **files, **settings_fields(settings)},
    )


def settings_fields(settings: HarborSettings) -> dict[str, Any]:
    """Fields of ``TerminalTask`` that are read from the settings."""
    environment, verifier = settings.environment, settings.verifier
    separate = verifier.environment_mode == "separate" or (
        verifier.environment_mode is None and verifier.environment is not None
    )
    return {
        "agent_user": settings.agent.user,
        "verifier_user": verifier.user,
        "verifier_mode": VerifierMode.SEPARATE if separate else VerifierMode.SHARED,
        "limits": Limits(
            agent_s=settings.agent.timeout_sec, verifier_s=verifier.timeout_sec, build_s=environment.build_timeout_sec
        ),
        "resources": Resources(
            cpus=environment.cpus,
            memory_mb=settings.memory_mb,
            storage_mb=settings.storage_mb,
            gpus=environment.gpus,
            os=environment.os,
        ),
        "network": Network(mode=settings.network_mode, allowed_hosts=environment.allowed_hosts),
        "agent_network": _own_network(settings.agent),
        "verifier_network": _own_network(verifier),
        "docker_image": environment.docker_image,
        "workdir": environment.workdir,
        "environment_env": dict(environment.env),
        "verifier_env": dict(verifier.env),
        "solution_env": dict(settings.solution.env),
        "metadata": dict(settings.metadata),
        "reward_strategy": settings.multi_step_reward_strategy,
    }


def _own_network(table: AgentTable | VerifierTable) -> Network | None:
    if table.network_mode is None and not table.allowed_hosts:
        return None
    return Network(mode=table.network_mode or "allowlist", allowed_hosts=table.allowed_hosts)


def step_fields(settings: HarborSettings, step: StepSettings) -> dict[str, Any]:
    """Fields of ``TaskStep`` that are read from the settings; what a step leaves out holds as for the task."""
    return {
        "agent_user": step.agent.user or settings.agent.user,
        "verifier_user": step.verifier.user or settings.verifier.user,
        "limits": Limits(
            agent_s=step.agent.timeout_sec or settings.agent.timeout_sec,
            verifier_s=step.verifier.timeout_sec or settings.verifier.timeout_sec,
            build_s=settings.environment.build_timeout_sec,
        ),
        "min_reward": dict(step.min_reward),
    }


def _unread(settings: HarborSettings) -> tuple[Note, ...]:
    """What is set and understood, and still not acted on by the static half."""
    found = {
        "environment.mcp_servers": settings.environment.mcp_servers,
        "environment.healthcheck": settings.environment.healthcheck,
        "environment.tpu": settings.environment.tpu,
        "environment.skills_dir": settings.environment.skills_dir,
        "verifier.collect": settings.verifier.collect,
        "verifier.environment": settings.verifier.environment,
        "artifacts": settings.artifacts,
    }
    return tuple(Note(where=key, what=f"{key} is kept and not acted on") for key, value in found.items() if value)


# ------------------------------------------------------------------------------------------------ several steps


def _multi_step(contents: Contents, task_id: str, table: dict[str, Json], settings: HarborSettings) -> TerminalTask:
    where = str(contents.root / SETTINGS_FILE)
    names = [step.name for step in settings.steps]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            "[[steps]] repeats a name" if names else "steps/ without [[steps]]",
            where=where,
            expected="one [[steps]] with a name for each folder below steps/",
            mend="name the steps in their order",
        )
    found = {entry.path.split("/")[1] for entry in contents.below("steps")}
    unnamed = tuple(
        Note(where=f"steps/{name}", what="no [[steps]] names this folder") for name in sorted(found - set(names))
    )
    steps = tuple(_step(contents, settings, step) for step in settings.steps)
    return build_task(
        contents,
        task_id,
        TaskFormat.HARBOR,
        table,
        instruction=_instruction(contents, INSTRUCTION) if contents.is_file(INSTRUCTION) else "",
        environment_dir="environment",
        dockerfile=_dockerfile(contents, settings),
        compose_file=_compose_file(contents),
        tests_dir="tests" if contents.is_folder("tests") else "",
        solution_dir="solution" if contents.is_folder("solution") else "",
        tests=_placements(contents, "tests", TESTS_TARGET),
        solution=_placements(contents, "solution", SOLUTION_TARGET),
        test_command=(),
        oracle=(),
        steps=steps,
        notes=unnamed,
    )


def _step(contents: Contents, settings: HarborSettings, step: StepSettings) -> TaskStep:
    folder = f"steps/{step.name}"
    if not contents.is_folder(folder):
        raise InputError(
            f"step {step.name!r} has no folder",
            where=str(contents.root / SETTINGS_FILE),
            expected=f"a folder {folder}",
            mend="add it, or correct the name",
        )
    # Shared tests and solutions of the task lie beneath those of the step.
    tests = _placements(contents, "tests", TESTS_TARGET) + _placements(contents, f"{folder}/tests", TESTS_TARGET)
    solution = _placements(contents, "solution", SOLUTION_TARGET)
    solution += _placements(contents, f"{folder}/solution", SOLUTION_TARGET)
    return TaskStep(
        name=step.name,
        instruction=_instruction(contents, f"{folder}/{INSTRUCTION}"),
        tests=tests,
        test_command=_test_command(contents, tests),
        solution=solution,
        oracle=_oracle(contents, solution),
        workdir_files=f"{folder}/workdir" if contents.is_folder(f"{folder}/workdir") else "",
        **step_fields(settings, step),
    )


# ------------------------------------------------------------------------------------------------ files


def _instruction(contents: Contents, path: str) -> str:
    text = contents.read_text(path)
    if not text.strip():
        raise InputError(
            f"{path} is empty", where=str(contents.root / path), expected="what the agent is to do", mend="write it"
        )
    return text


def _placements(contents: Contents, source: str, target: str) -> tuple[Placement, ...]:
    """Where a folder goes, if it is there; a link to a folder inside the task counts as that folder."""
    real = contents.resolve(source)
    return (Placement(source=real, target=target),) if real and contents.is_folder(real) else ()


def _dockerfile(contents: Contents, settings: HarborSettings) -> str:
    if contents.is_file("environment/Dockerfile"):
        return "environment/Dockerfile"
    if settings.environment.docker_image or _compose_file(contents):
        return ""
    raise InputError(
        "no environment",
        where=str(contents.root),
        expected="environment/Dockerfile, or docker_image in [environment]",
        mend="add one of them",
    )


def _compose_file(contents: Contents) -> str:
    return next((f"environment/{name}" for name in COMPOSE_FILES if contents.is_file(f"environment/{name}")), "")


def _script(contents: Contents, placements: tuple[Placement, ...], name: str) -> str:
    """Source path of a script in the placements, the last one first; empty: none."""
    paths = (f"{placement.source}/{name}" for placement in reversed(placements))
    return next((path for path in paths if contents.is_file(path)), "")


def _test_command(contents: Contents, tests: tuple[Placement, ...]) -> tuple[str, ...]:
    script = _script(contents, tests, TEST_SCRIPT)
    if not script:
        raise InputError(
            "no tests", where=str(contents.root), expected=f"tests/{TEST_SCRIPT}", mend="add the script that judges"
        )
    return (*interpreter(contents, script), f"{TESTS_TARGET}/{TEST_SCRIPT}")


def _oracle(contents: Contents, solution: tuple[Placement, ...]) -> tuple[str, ...]:
    script = _script(contents, solution, SOLUTION_SCRIPT)
    return (*interpreter(contents, script), f"{SOLUTION_TARGET}/{SOLUTION_SCRIPT}") if script else ()


def _solution_notes(contents: Contents, folder: str) -> tuple[Note, ...]:
    if contents.is_file(f"{folder}/{SOLUTION_SCRIPT}"):
        return ()
    other = [name for name in WINDOWS_SCRIPTS if contents.is_file(f"{folder}/{name}")]
    what = f"{other[0]} is for another system and is not run" if other else "no reference solution is shipped"
    return (Note(where=folder, what=what),)


def interpreter(contents: Contents, script: str) -> tuple[str, ...]:
    """Words in front of a script's path: its ``#!`` line, or bash. So no executable bit is needed."""
    return interpreter_of(contents.read_head(script, 512))


def interpreter_of(head: bytes) -> tuple[str, ...]:
    """The same, of the first bytes of a script."""
    first = head.partition(b"\n")[0]
    if first.startswith(b"#!"):
        try:
            words = shlex.split(first[2:].decode())
        except ValueError:
            words = []
        if words:
            return tuple(words)
    return ("bash",)


def _plain(value: Any) -> Any:
    """TOML to JSON data: dates become their text, and so do numbers that JSON or 64 bits cannot hold."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if beyond_json(value) else value


def beyond_json(value: Any) -> bool:
    """Whether a number is not finite, or an integer of more than 64 bits."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63
