"""Records of a terminal task as its folder declares it: what is read, nothing that was run.

Paths inside a task folder are relative with ``/``; paths inside a sandbox are absolute. Times are seconds
of wall clock.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from flightschool.errors import InputError
from flightschool.records import Json, Record

__all__ = [
    "Limits",
    "Network",
    "Note",
    "Placement",
    "Resources",
    "TaskFormat",
    "TaskStep",
    "TerminalTask",
    "UnreadableTask",
    "VerdictSource",
    "VerifierMode",
]


class TaskFormat(StrEnum):
    """Layout of a task folder."""

    HARBOR = "harbor"
    TERMINAL_BENCH_1 = "terminal-bench-1"


class VerdictSource(StrEnum):
    """Where the verdict of the task's tests is found."""

    REWARD_FILE = "reward_file"  # reward.json or reward.txt: ``read_reward``
    PYTEST_SUMMARY = "pytest_summary"  # what the tests print: ``read_pytest_summary``
    UNKNOWN_PARSER = "unknown_parser"  # a parser that is not read here; a note names it


class VerifierMode(StrEnum):
    """Where the task wants its tests to run. flightschool grades in a second sandbox whatever is declared."""

    SHARED = "shared"
    SEPARATE = "separate"


class Note(Record, frozen=True, kw_only=True):
    """Something about a folder that is no error and that its owner should know."""

    where: str
    """File, and key or line."""
    what: str


class Limits(Record, frozen=True, kw_only=True):
    """Time limits in seconds; None: the folder names none and the runner's own limit holds."""

    agent_s: float | None = None
    verifier_s: float | None = None
    build_s: float | None = None


class Resources(Record, frozen=True, kw_only=True):
    """What the task asks of a machine; None: nothing named."""

    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int = 0
    os: str = "linux"


class Network(Record, frozen=True, kw_only=True):
    """What may be reached."""

    mode: str = "public"
    """``public``, ``no-network`` or ``allowlist``."""
    allowed_hosts: tuple[str, ...] = ()


class Placement(Record, frozen=True, kw_only=True):
    """A file or folder of the task and where it is put. Later placements lie over earlier ones."""

    source: str
    target: str
    content: str = ""
    """Text of a program that is written instead of the source, which it was made from; empty: the source itself."""


class TaskStep(Record, frozen=True, kw_only=True):
    """One instruction with its tests. A task of one step is its own only step (``TerminalTask.stages``)."""

    name: str
    instruction: str
    tests: tuple[Placement, ...]
    test_command: tuple[str, ...]
    solution: tuple[Placement, ...] = ()
    oracle: tuple[str, ...] = ()
    """Command line of the reference solution once ``solution`` is placed; empty: no solution is shipped."""
    workdir_files: str = ""
    """Folder whose content is laid into the working directory when the step begins; empty: none."""
    agent_user: str = ""
    verifier_user: str = ""
    limits: Limits = Limits()
    min_reward: dict[str, float] = msgspec.field(default_factory=dict)
    """Least reward by key (``reward`` is the total) to go on to the next step; empty: always go on."""


class TerminalTask(Record, frozen=True, kw_only=True):
    """A task folder as read."""

    id: str
    """Path of the folder relative to what the user named; the folder's own name when it was named itself."""
    folder: str
    """Where the folder lies on this machine. Not part of any digest."""
    format: TaskFormat
    instruction: str
    """What the agent is told; of a task of several steps, the text over all of them, often empty."""
    settings: dict[str, Json]
    """The configuration as Harbor's ``task.toml`` would hold it, unknown keys included. The fields below that are not
    files are read from it, so it is changed through ``amend`` and it is what an export writes."""
    environment_dir: str
    """Build context."""
    dockerfile: str
    """Relative to the folder; empty: there is none and ``docker_image`` is all that is known."""
    tests_dir: str
    solution_dir: str
    """Empty: none is shipped."""
    test_command: tuple[str, ...]
    oracle: tuple[str, ...]
    """Command line of the reference solution inside a sandbox; empty: no solution is shipped."""
    tests: tuple[Placement, ...]
    solution: tuple[Placement, ...]
    verdict_source: VerdictSource
    digest: str
    """Digest of every file, link and folder below the task's folder: names, content and executable bits. Of an amended
    task, a digest of that and of the new settings, until it is exported and read again."""
    steps: tuple[TaskStep, ...] = ()
    """Steps in order of a task of several steps; empty for all others."""
    reward_strategy: str = "mean"
    """How the rewards of several steps become one: ``mean`` or ``final``."""
    agent_user: str = ""
    """User that the agent runs as; empty: the user that the image ends with."""
    verifier_user: str = ""
    verifier_mode: VerifierMode = VerifierMode.SHARED
    limits: Limits = Limits()
    resources: Resources = Resources()
    network: Network = Network()
    """Of the environment; holds for the agent and the verifier where they name none of their own."""
    agent_network: Network | None = None
    verifier_network: Network | None = None
    docker_image: str = ""
    compose_file: str = ""
    workdir: str = ""
    """Working directory of the agent; empty: where the image ends."""
    environment_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the agent's sandbox, as written; ``${NAME}`` asks for the host's variable."""
    verifier_env: dict[str, str] = msgspec.field(default_factory=dict)
    solution_env: dict[str, str] = msgspec.field(default_factory=dict)
    metadata: dict[str, Json] = msgspec.field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def stages(self) -> tuple[TaskStep, ...]:
        """The steps, or the task itself as its only step: what a runner walks through."""
        return self.steps or (
            TaskStep(
                name="",
                instruction=self.instruction,
                tests=self.tests,
                test_command=self.test_command,
                solution=self.solution,
                oracle=self.oracle,
                agent_user=self.agent_user,
                verifier_user=self.verifier_user,
                limits=self.limits,
            ),
        )

    @property
    def unplaced(self) -> TerminalTask:
        """The task without where it lies and without digest and id: equal for a folder and its faithful copy."""
        return msgspec.structs.replace(self, id="", folder="", digest="")


class UnreadableTask(Record, frozen=True, kw_only=True):
    """A folder that should be a task and cannot be read; the walk over its neighbours goes on."""

    id: str
    folder: str
    what: str
    where: str
    expected: str
    mend: str

    def error(self) -> InputError:
        """The error to raise if this one task is all that was asked for."""
        return InputError(self.what, where=self.where, expected=self.expected, mend=self.mend)
