"""Compose files: whether they say more than *build this Dockerfile and keep it alive*.

One service built from the task's own Dockerfile needs no engine. A second service, a device, a privilege or a volume of
the host does, and each is an obstacle by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flightschool.environments.terminal.contents import Contents, relative_path
from flightschool.environments.terminal.plan_records import Need, Obstacle
from flightschool.environments.terminal.yaml_text import load_yaml
from flightschool.errors import InputError
from flightschool.records import Json, Record

__all__ = ["ComposeFacts", "read_compose"]

MAIN_SERVICES = ("main", "client")
"""Name of the agent's service in Harbor and in Terminal-Bench 1."""
_HARMLESS = frozenset(
    [
        "build",
        "command",
        "container_name",
        "cpus",
        "deploy",
        "environment",
        "hostname",
        "image",
        "init",
        "labels",
        "mem_limit",
        "platform",
        "pull_policy",
        "restart",
        "stdin_open",
        "stop_grace_period",
        "tty",
        "working_dir",
        "healthcheck",
    ]
)
_HARNESS_VOLUMES = ("${T_BENCH_", "${HOST_", "${TEST_DIR")
"""Log folders that the harness of the format mounts by variables of its own."""


class ComposeFacts(Record, frozen=True, kw_only=True):
    """What a compose file says about the agent's service."""

    dockerfile: str = "Dockerfile"
    context: str = ""
    """Relative to the compose file's folder."""
    image: str = ""
    """Image to use where nothing is built."""
    build_args: dict[str, str] = msgspec.field(default_factory=dict)
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    workdir: str = ""
    obstacles: tuple[Obstacle, ...] = ()


def read_compose(contents: Contents, path: str) -> ComposeFacts:
    """Read one compose file.

    Raises:
        InputError: no YAML, no services, or a build context that leaves the folder.
    """
    where = str(contents.root / path)
    text = contents.read_text(path)
    table = load_yaml(text, where)
    services = table.get("services") if isinstance(table, dict) else None
    if not isinstance(services, dict) or not services:
        raise InputError("no services", where=where, expected="a compose file", mend="add the service of the agent")
    name = next((name for name in MAIN_SERVICES if name in services), next(iter(services)))
    main = services[name] if isinstance(services[name], dict) else {}
    reasons = [(other, f"the service {other!r} runs beside the agent's") for other in services if other != name]
    reasons += [(key, f"the service asks for {key}") for key in main if key not in _HARMLESS | {"volumes"}]
    reasons += [
        ("volumes", f"the service mounts {volume}")
        for volume in _list(main.get("volumes"))
        if not str(volume).startswith(_HARNESS_VOLUMES)
    ]
    build = main.get("build")
    build = {"context": build} if isinstance(build, str) else build if isinstance(build, dict) else {}
    reasons += [(key, f"the build asks for {key}") for key in build if key not in ("context", "dockerfile", "args")]
    context = relative_path(str(build.get("context", ".")))
    if context is None or "$" in context:
        raise InputError(
            f"build context {build.get('context')!r} leaves the task",
            where=where,
            expected="a folder of the task",
            mend="move what is needed into it",
        )
    image = "" if build else str(main.get("image") or "")
    return ComposeFacts(
        dockerfile=str(build.get("dockerfile", "Dockerfile")) if build else "",
        context=context,
        image="" if "$" in image else image,
        build_args=_pairs(build.get("args")),
        environment=_pairs(main.get("environment")),
        workdir=str(main.get("working_dir") or ""),
        obstacles=tuple(
            Obstacle(need=Need.DOCKER, file=path, line=_line(text, key), reason=reason) for key, reason in reasons
        ),
    )


def _list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else []


def _pairs(value: Json) -> dict[str, str]:
    """Both spellings of variables: a table, or a list of ``NAME=value``."""
    if isinstance(value, dict):
        return {str(name): _scalar(item) for name, item in value.items()}
    pairs = (str(item).partition("=") for item in _list(value))
    return {name: text for name, _, text in pairs}


def _scalar(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _line(text: str, key: str) -> int:
    """First line that holds ``key:``; 0 when it is spelled otherwise."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().strip("'\"").startswith((f"{key}:", f"{key}':", f'{key}":')):
            return number
    return 0
