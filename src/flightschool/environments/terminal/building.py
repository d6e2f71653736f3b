"""The build plan of a task: its Dockerfile, compose file and settings taken together."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightschool.environments.terminal.compose import ComposeFacts, read_compose
from flightschool.environments.terminal.contents import Contents, EntryKind, list_contents
from flightschool.environments.terminal.copying import Context
from flightschool.environments.terminal.dockerfile import parse_dockerfile
from flightschool.environments.terminal.ignoring import IgnoreRules
from flightschool.environments.terminal.plan_records import BuildPlan, FromStep, Need, Obstacle
from flightschool.environments.terminal.planning import IsPresent, plan_dockerfile
from flightschool.environments.terminal.records import TerminalTask
from flightschool.errors import InputError

__all__ = ["build_files", "plan_build"]


def plan_build(
    task: TerminalTask,
    *,
    is_present: IsPresent | None = None,
    build_args: Mapping[str, str] | None = None,
    architecture: str = "amd64",
    contents: Contents | None = None,
) -> BuildPlan:
    """How to build the task's environment. Reads the task's folder, runs nothing.

    Args:
        task: a task as read.
        is_present: whether a package that apt or pip is asked for is there already. Without it every RUN step that
            fetches *needs network*.
        build_args: values for ARG, over those of the compose file.
        contents: the folder as listed before; None: it is listed.
        architecture: what ``TARGETARCH`` says, and the only platform that a FROM may insist on.

    Raises:
        InputError: the Dockerfile cannot build anywhere, or copies what lies outside of its context.
    """
    contents = contents or list_contents(Path(task.folder))
    facts = read_compose(contents, task.compose_file) if task.compose_file else ComposeFacts()
    general = _general(task) + facts.obstacles
    path, context = _dockerfile(task, facts)
    if not path or not contents.is_file(path):
        return _image_alone(task, task.docker_image or facts.image, general)
    plan = plan_dockerfile(
        parse_dockerfile(contents.read_text(path), path),
        _context(contents, context, path),
        build_args={**facts.build_args, **(build_args or {})},
        architecture=architecture,
        is_present=is_present,
        where=path,
    )
    return msgspec.structs.replace(plan, general=general + plan.general)


def build_files(task: TerminalTask) -> tuple[str, str]:
    """The Dockerfile and the build context, relative to the task's folder; an empty context is the folder itself."""
    contents = list_contents(Path(task.folder))
    facts = read_compose(contents, task.compose_file) if task.compose_file else ComposeFacts()
    path, context = _dockerfile(task, facts)
    return path, "" if context == "." else context


def _dockerfile(task: TerminalTask, facts: ComposeFacts) -> tuple[str, str]:
    if task.dockerfile or not task.compose_file or not facts.dockerfile:
        return task.dockerfile, task.environment_dir
    context = posixpath.normpath(posixpath.join(posixpath.dirname(task.compose_file), facts.context))
    return posixpath.join(context, facts.dockerfile), context


def _image_alone(task: TerminalTask, image: str, general: tuple[Obstacle, ...]) -> BuildPlan:
    if not image:
        raise InputError(
            "no environment", where=task.folder, expected="a Dockerfile or an image", mend="add one of them"
        )
    # The base of a Dockerfile is mostly a bare system. An image that is the whole environment holds the task's files,
    # unless it is one of the official ones, whose names have no owner.
    official = "/" not in image.partition("@")[0].removeprefix("docker.io/library/")
    reason = "the environment is an image of which only the name is known"
    obstacles = () if official else (Obstacle(need=Need.DOCKER, file="task.toml", line=0, reason=reason),)
    step = FromStep(line=0, end_line=0, text=f"FROM {image}", image=image, obstacles=obstacles)
    return BuildPlan(base=image, steps=(step,), general=general)


def _context(contents: Contents, folder: str, dockerfile: str) -> Context:
    """The context's own listing: a link may lead anywhere inside the context, and no further."""
    folder = "" if folder == "." else folder
    listed = contents.entries.get(folder)
    inner = contents
    if folder:
        is_real = listed is not None and listed.kind is EntryKind.FOLDER
        inner = contents.within(folder) if is_real else list_contents(contents.root / folder)
    own = posixpath.relpath(dockerfile, folder or ".")
    names = (f"{own}.dockerignore", ".dockerignore")
    name = next((name for name in names if not own.startswith("..") and inner.is_file(name)), "")
    return Context(inner, IgnoreRules(inner.read_text(name) if name else ""))


def _general(task: TerminalTask) -> tuple[Obstacle, ...]:
    environment = task.settings.get("environment", {})
    reasons = []
    if task.resources.os != "linux":
        reasons.append(f"the task is for {task.resources.os}")
    if task.resources.gpus:
        reasons.append(f"the task wants {task.resources.gpus} accelerator(s)")
    reasons += [f"the task sets environment.{key}" for key in ("tpu", "mcp_servers") if environment.get(key)]
    return tuple(Obstacle(need=Need.DOCKER, file="task.toml", line=0, reason=reason) for reason in reasons)
