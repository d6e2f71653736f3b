"""The maintenance desk of a plant as an environment."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import msgspec

from flightschool.digest import digest
from flightschool.environments.desk.assembling import Assembled, assemble
from flightschool.environments.desk.casting import cast
from flightschool.environments.desk.families import Stratum, load_strata, reworded
from flightschool.environments.desk.permissions import rules_for
from flightschool.environments.desk.toolset import TOOLS
from flightschool.environments.desk.world import DeskWorld
from flightschool.errors import ConfigError, NotFoundError
from flightschool.governance import RuleSet
from flightschool.records import Reference, Task, ToolSpec

__all__ = ["TASKS_PER_FAMILY", "DeskEnvironment", "build_environment"]

TASKS_PER_FAMILY = 6


def build_environment(
    seed: int = 0, wording: Path | None = None, rename: Mapping[str, str] | None = None
) -> DeskEnvironment:
    """The desk.

    Args:
        seed: other seeds give other ids, people and values to the same families.
        wording: TOML file of paraphrased instructions (family → ``say``, ``rule``).
        rename: tool → visible name, applied to specs, tasks, examples, checks and permissions alike.

    Raises:
        ConfigError: the wording or a new name cannot be used.
    """
    strata = load_strata() if wording is None else reworded(load_strata(), wording)
    return DeskEnvironment(strata, seed, _visible_names(rename or {}))


def _visible_names(rename: Mapping[str, str]) -> dict[str, str]:
    names = {tool.name: tool.name for tool in TOOLS}
    for old, new in rename.items():
        if old not in names:
            near = difflib.get_close_matches(old, names, n=1)
            mend = f"did you mean {near[0]!r}?" if near else "see the tools of the desk"
            raise ConfigError(f"unknown tool {old!r}", where="rename", expected="a tool of the desk", mend=mend)
        if old == "decline":
            raise ConfigError(
                "decline keeps its name", where="rename", expected="another tool", mend="harnesses end on this name"
            )
        if not new.isidentifier():
            raise ConfigError(
                f"not a tool name: {new!r}", where="rename", expected="letters, digits, _", mend="change it"
            )
        names[old] = new
    if len(set(names.values())) < len(names):
        raise ConfigError("two tools would share a name", where="rename", expected="distinct names", mend="change one")
    return names


class DeskEnvironment:
    """Implements ``protocols.Environment``. Immutable; worlds are opened from shared images."""

    name = "desk"

    def __init__(self, strata: Sequence[Stratum], seed: int, names: Mapping[str, str]) -> None:
        self.seed = seed
        self._strata = tuple(strata)
        self._names = dict(names)
        self._internal = {visible: own for own, visible in names.items()}
        self._families: dict[str, Assembled] = {
            family.name: assemble(family, cast(family, seed, TASKS_PER_FAMILY), names)
            for stratum in strata
            for family in stratum.families
        }
        self._tasks = {task.id: task for made in self._families.values() for task in made.tasks}
        self._references = {ref.task_id: ref for made in self._families.values() for ref in made.references}
        self._tools = tuple(msgspec.structs.replace(tool, name=names[tool.name]) for tool in TOOLS)
        self._rules: dict[tuple[str, ...], RuleSet] = {}

    @cached_property
    def digest(self) -> str:
        """Digest of tasks, tools, checks, permissions, states and policy."""
        return digest(
            {
                "name": self.name,
                "strata": dict(self.strata),
                "tasks": list(self._tasks.values()),
                "tools": self._tools,
                "references": list(self._references.values()),
                "permissions": [self.permissions(made.tasks[0]).digest for made in self._families.values()],
                "states": {name: digest(made.start.image) for name, made in self._families.items()},
                "policy": self.policy_text,
            }
        )

    @cached_property
    def policy_text(self) -> str:
        """The house rules, with the sentence that each family excerpts."""
        text = files("flightschool.environments.desk").joinpath("policy.md").read_text(encoding="utf-8")
        sections = [
            f"### {stratum.name}\n\n" + "\n".join(f"- {rule}" for rule in _distinct(f.rule for f in stratum.families))
            for stratum in self._strata
        ]
        return text.rstrip() + "\n\n" + "\n\n".join(sections) + "\n"

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share of traffic, in rising difficulty."""
        return {stratum.name: stratum.share for stratum in self._strata}

    def tasks(self) -> Sequence[Task]:
        """All tasks, stratum by stratum, family by family."""
        return tuple(self._tasks.values())

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError`` with the nearest id."""
        return self._tasks[self._known(task_id)]

    def tools(self) -> Sequence[ToolSpec]:
        """All tools, by their visible names."""
        return self._tools

    def own_name(self, visible: str) -> str:
        """The desk's own name of a tool that may have been renamed."""
        return self._internal[visible]

    def permissions(self, task: Task) -> RuleSet:
        """What the desk's agent may call in this task."""
        if task.tools not in self._rules:
            self._rules[task.tools] = rules_for(task.tools, self._tools, self._names)
        return self._rules[task.tools]

    def open(self, task: Task) -> DeskWorld:
        """A fresh world in the family's initial state."""
        return DeskWorld(self._families[task.initial_state].start, self._internal)

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task."""
        return self._references[self._known(task_id)]

    def _known(self, task_id: str) -> str:
        if task_id not in self._tasks:
            near = difflib.get_close_matches(task_id, self._tasks, n=1)
            mend = f"did you mean {near[0]!r}?" if near else "list the tasks of the desk"
            raise NotFoundError(f"no task {task_id!r}", where="desk", expected="a task of the desk", mend=mend)
        return task_id


def _distinct(rules: object) -> list[str]:
    return list(dict.fromkeys(rules))  # type: ignore[call-overload]
