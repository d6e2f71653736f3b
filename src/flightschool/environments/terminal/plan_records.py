"""Records of a build plan: what a Dockerfile does to a tree, step by step, with all variables substituted."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.environments.terminal.fetching import Fetch
from flightschool.records import Record

__all__ = [
    "ArgStep",
    "BuildPlan",
    "BuildStep",
    "CopyItem",
    "CopySource",
    "CopyStep",
    "EnvStep",
    "FromStep",
    "Need",
    "Obstacle",
    "OtherStep",
    "Readiness",
    "RunStep",
    "UserStep",
    "WorkdirStep",
]


class Need(StrEnum):
    """What an obstacle asks for."""

    DOCKER = "docker"  # cannot be replayed without a container engine
    NETWORK = "network"  # can be replayed, but only with a network


class Readiness(StrEnum):
    """What building the task takes. Never a failure of the task."""

    REPLAYABLE = "replayable"
    NEEDS_NETWORK = "needs network"
    NEEDS_DOCKER = "needs docker"


class Obstacle(Record, frozen=True, kw_only=True):
    """Why a step cannot be replayed, or only with a network."""

    need: Need
    file: str
    line: int
    """Line of the file, from 1; 0: the whole file."""
    reason: str


class _Step(Record, frozen=True, kw_only=True):
    """What all steps have."""

    line: int
    end_line: int
    text: str
    """The instruction as written, on one line."""
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def is_replayable(self) -> bool:
        """Whether the step can be replayed without a container engine (it may want a network)."""
        return all(obstacle.need is not Need.DOCKER for obstacle in self.obstacles)


class FromStep(_Step, frozen=True, kw_only=True, tag="from"):
    """The base."""

    image: str


class CopyItem(Record, frozen=True, kw_only=True):
    """A path that one source brings along."""

    path: str
    """In the build context."""
    below: str
    """The same below the source; empty: the source itself, when it is a file."""
    kind: str
    """``file``, ``folder`` or ``link``."""
    executable: bool = False
    target: str = ""
    """Text of a link, to be made as it stands and never followed by who copies."""


class CopySource(Record, frozen=True, kw_only=True):
    """One source of a COPY or ADD after wildcards."""

    path: str
    """In the build context, links followed; a heredoc has its name here."""
    name: str
    """Base name that it gets inside a folder."""
    is_folder: bool
    items: tuple[CopyItem, ...] = ()
    """What is copied, ignored paths left out, folders before what they hold; empty for a heredoc."""
    content: str | None = None
    """Text of a heredoc."""
    unpack: bool = False
    """ADD of a local tar archive: its content is laid into the destination."""


class CopyStep(_Step, frozen=True, kw_only=True, tag="copy"):
    """COPY, or ADD of local files."""

    sources: tuple[CopySource, ...]
    destination: str
    """Absolute; ends with ``/`` when it must be a folder."""
    owner: str = ""
    """``--chown`` as substituted; empty: root."""
    mode: str = ""
    """``--chmod`` as substituted; empty: as in the context."""
    content_digest: str = ""
    """Digest of everything that is copied."""


class WorkdirStep(_Step, frozen=True, kw_only=True, tag="workdir"):
    """The folder is made if it is not there."""

    path: str


class EnvStep(_Step, frozen=True, kw_only=True, tag="env"):
    """Variables of all later steps and of the finished environment."""

    values: dict[str, str]


class ArgStep(_Step, frozen=True, kw_only=True, tag="arg"):
    """Variables of later build steps only."""

    values: dict[str, str]
    """Names without a value (neither default nor build argument) are left out."""


class UserStep(_Step, frozen=True, kw_only=True, tag="user"):
    """User, and group behind ``:``, of later steps and of the agent."""

    user: str


class RunStep(_Step, frozen=True, kw_only=True, tag="run"):
    """One command, with all that it runs under."""

    argv: tuple[str, ...]
    """The shell form stands behind its shell (``/bin/sh -c …``)."""
    script: str = ""
    """A heredoc that begins with ``#!``: to be written to a file and executed instead of ``argv``."""
    workdir: str = "/"
    user: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables set by ENV and ARG so far, ENV first in rank."""
    fetches: tuple[Fetch, ...] = ()
    scratch: tuple[str, ...] = ()
    """Folders of cache and tmpfs mounts: there for the command, and what it leaves in them is not kept."""


class OtherStep(_Step, frozen=True, kw_only=True, tag="other"):
    """An instruction that leaves the tree as it is (CMD, LABEL, EXPOSE …), or one that is not known how to replay."""

    keyword: str


BuildStep: TypeAlias = FromStep | CopyStep | WorkdirStep | EnvStep | ArgStep | UserStep | RunStep | OtherStep


class BuildPlan(Record, frozen=True, kw_only=True):
    """How to build a task's environment without a container engine."""

    base: str
    """Image that the first step starts from; its stand-in is chosen, and recorded, by who replays."""
    steps: tuple[BuildStep, ...]
    stages: tuple[str, ...] = ()
    """Names of all stages of the file (their number where unnamed); those that the last does not need are not in
    ``steps``."""
    workdir: str = "/"
    user: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the finished environment."""
    general: tuple[Obstacle, ...] = ()
    """Obstacles that belong to no single step: services, devices, another operating system."""

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """All obstacles in order of the file."""
        return self.general + tuple(obstacle for step in self.steps for obstacle in step.obstacles)

    @property
    def readiness(self) -> Readiness:
        """What building takes."""
        needs = {obstacle.need for obstacle in self.obstacles}
        if Need.DOCKER in needs:
            return Readiness.NEEDS_DOCKER
        return Readiness.NEEDS_NETWORK if Need.NETWORK in needs else Readiness.REPLAYABLE

    @property
    def is_multi_stage(self) -> bool:
        """Whether the file has more than one FROM."""
        return len(self.stages) > 1

    @property
    def digest(self) -> str:
        """Digest of what the steps do and of all that they copy: the key of a cached tree, given the same base.

        Line numbers, comments and what happens to be installed do not enter.
        """
        return content_digest([self.base, [_bare(step) for step in self.steps]])


def _bare(step: BuildStep) -> BuildStep:
    bare = msgspec.structs.replace(step, line=0, end_line=0, text="", obstacles=())
    return msgspec.structs.replace(bare, fetches=()) if isinstance(bare, RunStep) else bare
