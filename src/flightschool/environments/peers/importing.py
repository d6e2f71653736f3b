"""Environments of reasoning-gym, Gymnasium, TextArena and verifiers as environments of ours.

A source is ``NAME,NAME`` over there: generators (all, if none is named), one environment id, games, one taskset. Seeds
are tasks: ``seeds`` 0 … n − 1 of every name (rows, for verifiers). What a generator calls its difficulty is its
configuration.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.environments.foreign.content import ForeignContent, ForeignTask, oracle, reward_checks
from flightschool.environments.peers.process import PeerProcess, PeerSession
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Effect, Json, Reference, Task, ToolSpec

__all__ = ["PeerSettings", "import_peer", "load_knobs"]


class PeerSettings(NamedTuple):
    """What is asked for."""

    python: str
    """Interpreter with the ecosystem's packages."""
    names: tuple[str, ...]
    """Generators, an environment id, games, a taskset; for reasoning-gym none means all."""
    num_seeds: int = 8
    config: Mapping[str, Json] = {}
    """reasoning-gym: generator → its configuration; else what the environment is made with."""
    threshold: float = 1.0
    reward_rule: str = "sum"
    max_turns: int = 16


def load_knobs(path: Path) -> dict[str, Json]:
    """Configurations from a TOML file.

    Raises:
        InputError: no such file, or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            f"the configuration cannot be read: {error}", where=str(path), expected="a TOML file", mend="correct it"
        ) from error


def import_peer(ecosystem: str, settings: PeerSettings) -> tuple[ForeignContent, tuple[str, ...]]:
    """Read an ecosystem; also the ids of tasks that are left out, since they begin otherwise when they are begun again.

    Raises:
        InputError: a name that it does not know, a configuration that it refuses, or an interpreter without it.
    """
    if ecosystem != "reasoning-gym" and not settings.names:
        raise InputError("no environment is named", where="SOURCE", expected=f"{ecosystem}:NAME", mend="name one")
    source: dict[str, Json] = {
        "names": list(settings.names),
        "seeds": list(range(settings.num_seeds)),
        "config": dict(settings.config),
        "threshold": settings.threshold,
    }
    process = PeerProcess(settings.python, ecosystem)
    try:
        try:
            told = process.ask("describe", source=source)
        except InfrastructureError as error:
            raise InputError(
                error.what, where=settings.python, expected=f"an interpreter with {ecosystem}", mend=_mend(ecosystem)
            ) from error
        openings = _openings(process, source, told)
    finally:
        process.close()
    unsteady = tuple(row["id"] for row in told["tasks"] if not openings[row["id"]])
    told["tasks"] = [row for row in told["tasks"] if openings[row["id"]]]
    if not told["tasks"]:
        raise InputError(
            "no task begins twice alike: what the policy is told would not be what it is asked",
            where=f"{ecosystem}: {', '.join(settings.names) or 'all'}",
            expected="environments that keep to their seeds",
            mend="name others",
        )
    return _content(ecosystem, settings, source, told, openings), unsteady


def _mend(ecosystem: str) -> str:
    return f"install {ecosystem} into an environment of its own and name its interpreter with --python"


def _openings(process: PeerProcess, source: Mapping[str, Json], told: Json) -> dict[str, str]:
    """Digest of each task's first observation; empty where two looks differ. One may have been told."""
    found = {}
    for row in told["tasks"]:
        seen = [content_digest(row["opening"])] if "opening" in row else []
        while len(seen) < 2:
            session = PeerSession(process, source, row["start"])
            seen.append(content_digest(session.reset().value))
            session.close()
        found[row["id"]] = seen[0] if seen[0] == seen[1] else ""
    return found


def _content(
    ecosystem: str, settings: PeerSettings, source: dict[str, Json], told: Json, openings: Mapping[str, str]
) -> ForeignContent:
    # what a foreign tool does to a foreign world is not known: none may be taken for a read
    specs = tuple(
        ToolSpec(
            name=tool["name"],
            description=tool["description"],
            parameters=tool["parameters"],
            effect=Effect.WRITE,
        )
        for tool in told.get("tools", [told["tool"]])
    )
    answering = told["tool"]["name"]
    ending = "" if told["observed"] else f"\n\nGive your answer with the tool {answering}."
    tasks, references, starts = [], [], {}
    for row in told["tasks"]:
        tasks.append(
            Task(
                id=row["id"],
                family=row["family"],
                stratum=row["stratum"],
                instruction=str(row["instruction"]) + ending,
                guidance=row.get("guidance", ""),
                tools=tuple(row.get("tools", ())),
                initial_state=canonical_json(row["start"]).decode(),
                max_turns=settings.max_turns,
            )
        )
        calls = oracle([(answering, {told["argument"]: answer}) for answer in row["oracle"]])
        references.append(Reference(task_id=row["id"], checks=reward_checks(), oracle=calls))
        starts[row["id"]] = ForeignTask(start=row["start"], opening_digest=openings[row["id"]])
    strata = [task.stratum for task in tasks]
    return ForeignContent(
        ecosystem=ecosystem,
        address=settings.python,
        source={**source, "version": told["version"]},
        policy_text=f"Tasks of {ecosystem} {told['version']}.",
        strata={name: strata.count(name) / len(strata) for name in sorted(set(strata))},
        tasks=tuple(tasks),
        starts=starts,
        references=tuple(references),
        tools=specs,
        allowed=tuple(spec.name for spec in specs),
        threshold=settings.threshold,
        reward_rule=settings.reward_rule,
    )
