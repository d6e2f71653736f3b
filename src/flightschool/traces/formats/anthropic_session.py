"""Session files of Anthropic's coding agent: JSON lines ``{type, uuid, parentUuid, sessionId, timestamp, message, …}``.

Lines form a tree. Where someone went back and asked anew, the tree forks: the last branch is the episode, the others
are its children. Sub-agents stand on lines marked ``isSidechain`` or in ``<session>/subagents/*.jsonl`` beside the
file; each is a child, linked to the call that started it. One message of the model is spread over several lines with
one ``message.id``. A parent may be missing, and the file keeps no system prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightschool.records import Json
from flightschool.traces.clock import Clock
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["AnthropicSessionImporter"]

_MOST_CHILDREN = 200
_DELEGATES = frozenset({"Task", "Agent"})
"""Tools that start a sub-agent."""


class AnthropicSessionImporter:
    """Importer of session files of Anthropic's coding agent."""

    format = "anthropic-session"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has lines with ``parentUuid`` and ``sessionId``."""
        del path
        return b'"sessionId"' in head and (b'"parentUuid"' in head or b'"isSidechain"' in head)

    def read(self, path: Path) -> Iterable[RecordedEpisode]:
        """The one episode of the file. Raises ``TraceError`` naming file and line."""
        lines = _lines(path)
        beside = path.with_suffix("") / "subagents"
        agents = [_lines(file) for file in sorted(beside.glob("*.jsonl"))] if beside.is_dir() else []
        yield _Session(path, lines, agents).episode()


class _Line(msgspec.Struct, kw_only=True):
    """One line that is part of a conversation."""

    number: int
    kind: str
    uuid: str
    parent: str
    sidechain: bool
    agent: str
    message_id: str
    raw: dict[str, Any]

    @property
    def answers(self) -> bool:
        """Whether the line carries the result of a tool rather than words of a person."""
        content = self.raw["message"].get("content")
        return isinstance(content, list) and any(
            isinstance(b, dict) and b.get("type") == "tool_result" for b in content
        )


def _lines(path: Path) -> list[_Line]:
    found = []
    for number, raw in json_objects(path):
        kind = raw.get("type")
        if kind not in ("user", "assistant"):
            continue  # summaries, progress, file snapshots, queue operations and whatever comes next
        message = raw.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("role", kind), str):
            raise broken("a line has no message", place(path, number), "message: {role, content}", "remove the line")
        found.append(
            _Line(
                number=number,
                kind=str(kind),
                uuid=str(raw.get("uuid") or f"line-{number}"),
                parent=str(raw.get("parentUuid") or ""),
                sidechain=raw.get("isSidechain") is True,
                agent=str(raw.get("agentId") or ""),
                message_id=str(message.get("id") or ""),
                raw=raw,
            )
        )
    return found


class _Session:
    """One session with its branches and sub-agents."""

    def __init__(self, path: Path, lines: list[_Line], agents: list[list[_Line]]) -> None:
        self.path = path
        self.issues: list[str] = []
        main = [line for line in lines if not line.sidechain]
        side = [line for line in lines if line.sidechain]
        if not main:
            main, side = side, []  # the file of a sub-agent, imported by itself
        if not main:
            raise broken("there is no conversation in the session", str(path), "user and assistant lines", "check it")
        self.main = self._acyclic(self._distinct(main))
        self.agents = [*_by_agent(side), *agents]

    def episode(self) -> RecordedEpisode:
        first = self.main[0].raw
        name = str(first.get("sessionId") or self.path.stem)
        trunk, branches = self._branches()
        clock = Clock()
        children = [*self._subagents(name, trunk), *self._left(name, branches)]
        if len(children) > _MOST_CHILDREN:
            self.issues.append(f"{len(children) - _MOST_CHILDREN} branches or sub-agents were left out")
        table = {key: first[key] for key in ("cwd", "gitBranch", "version") if isinstance(first.get(key), str)}
        return self._conversation(
            trunk, name, clock, issues=self.issues, facts=table, children=tuple(children[:_MOST_CHILDREN])
        )

    def _distinct(self, lines: list[_Line]) -> list[_Line]:
        """Lines by their uuid; one that was written twice counts once, where it was first."""
        found: dict[str, _Line] = {}
        for line in lines:
            if line.uuid in found:
                self.issues.append(f"line {line.number} repeats the uuid of line {found[line.uuid].number}")
            found.setdefault(line.uuid, line)
        return list(found.values())

    def _acyclic(self, lines: list[_Line]) -> list[_Line]:
        """Lines of which none is its own ancestor: where a circle closes, its first line has no parent."""
        known = {line.uuid: line for line in lines}
        grounded: set[str] = set()
        for line in lines:
            way: dict[str, None] = {}
            at: _Line | None = line
            while at is not None and at.uuid not in grounded and at.uuid not in way:
                way[at.uuid] = None
                at = known.get(at.parent)
            if at is not None and at.uuid in way:
                circle = list(way)[list(way).index(at.uuid) :]
                first = min((known[uuid] for uuid in circle), key=lambda one: one.number)
                self.issues.append(f"line {first.number} is its own ancestor")
                known[first.uuid] = msgspec.structs.replace(first, parent="")
            grounded |= set(way)
        return list(known.values())

    # -------------------------------------------------------------------------------------------- branches

    def _branches(self) -> tuple[list[_Line], list[list[_Line]]]:
        """The lines that were not given up, in order, and for each branch that was the lines down to its end."""
        known = {line.uuid: line for line in self.main}
        dangling = [line for line in self.main if line.parent and line.parent not in known]
        if dangling:
            self.issues.append(f"{len(dangling)} lines name a parent that is not in the file; kept in their order")
        given_up = [root for siblings in self._siblings().values() for root in siblings[:-1]]
        if not given_up:
            return self.main, []
        roots = {line.uuid for line in given_up}
        gone = {line.uuid for line in self.main if roots & set(self._ancestry(line, known))}
        trunk = [line for line in self.main if line.uuid not in gone]
        branches = []
        for root in given_up[:_MOST_CHILDREN]:
            before = set(self._ancestry(root, known))
            branches.append(
                [line for line in self.main if line.uuid in before or root.uuid in self._ancestry(line, known)]
            )
        return trunk, branches

    def _siblings(self) -> dict[tuple[str, str], list[_Line]]:
        """Lines that stand in for one another: words of a person, or messages of the model, under one parent.

        Answers of tools called side by side share a parent as well and are no alternatives.
        """
        found: dict[tuple[str, str], list[_Line]] = {}
        for line in self.main:
            if not line.parent or line.answers or line.raw.get("isMeta") is True:
                continue
            siblings = found.setdefault((line.parent, line.kind), [])
            if line.kind == "user" or line.message_id not in {one.message_id for one in siblings}:
                siblings.append(line)
        return {key: siblings for key, siblings in found.items() if len(siblings) > 1}

    def _ancestry(self, line: _Line, known: dict[str, _Line]) -> list[str]:
        """The line and all above it."""
        chain = [line.uuid]
        while line.parent in known:
            line = known[line.parent]
            chain.append(line.uuid)
        return chain

    def _left(self, name: str, branches: list[list[_Line]]) -> list[RecordedEpisode]:
        return [
            self._conversation(lines, f"{name}/branch-{index}", Clock(), relation="branch")
            for index, lines in enumerate(branches, 1)
        ]

    # -------------------------------------------------------------------------------------------- sub-agents

    def _subagents(self, name: str, trunk: list[_Line]) -> list[RecordedEpisode]:
        by_agent, by_prompt = _started(trunk)
        children = []
        for index, lines in enumerate(self.agents, 1):
            if not lines:
                continue
            agent = lines[0].agent or str(index)
            prompt = lines[0].raw["message"].get("content")
            call = by_agent.get(agent) or by_prompt.get(prompt if isinstance(prompt, str) else "", "")
            children.append(
                self._conversation(lines, f"{name}/{agent}", Clock(), relation="sub-agent", parent_call=call)
            )
        return children

    # -------------------------------------------------------------------------------------------- one conversation

    def _conversation(
        self,
        lines: Sequence[_Line],
        name: str,
        clock: Clock,
        *,
        issues: Sequence[str] = (),
        facts: dict[str, Json] | None = None,
        **more: Any,
    ) -> RecordedEpisode:
        notes: list[str] = []
        where = place(self.path, lines[0].number)
        messages = self._messages(lines, clock, notes)
        return assemble(
            converse(messages, where, lenient=True),
            id=name,
            source=f"{self.path.name}:{lines[0].number}",
            facts=facts_of(facts or {}, where),
            issues=[*issues, *notes],
            clock=clock,
            **more,
        )

    def _messages(self, lines: Sequence[_Line], clock: Clock, notes: list[str]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        asked: dict[str, float | None] = {}
        merged: dict[str, dict[str, Any]] = {}
        for line in lines:
            at = clock.at(line.raw.get("timestamp"))
            raw = line.raw["message"]
            chat = to_chat({"role": raw.get("role", line.kind), "content": raw.get("content")}, notes.append)
            for message in chat:
                if message["role"] == "tool":
                    message |= {"start_ms": asked.get(str(message.get("tool_call_id"))), "end_ms": at}
                elif message["role"] == "assistant":
                    asked.update({str(call["id"]): at for call in message.get("tool_calls") or ()})
                    message |= {"model": raw.get("model"), "usage": raw.get("usage"), "end_ms": at}
                    if line.message_id in merged:
                        _merge(merged[line.message_id], message)
                        continue
                    if line.message_id:
                        merged[line.message_id] = message
                messages.append(message)
        return messages


def _merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a further line of one message of the model."""
    for key in ("tool_calls", "content"):
        parts = [
            part if isinstance(part, list) else [part] if part else [] for part in (whole.get(key), piece.get(key))
        ]
        whole[key] = parts[0] + parts[1]
    thoughts = (whole.get("reasoning_content"), piece.get("reasoning_content"))
    whole["reasoning_content"] = "\n".join(thought for thought in thoughts if thought)
    whole |= {key: piece[key] for key in ("usage", "end_ms") if piece.get(key) is not None}


def _by_agent(lines: list[_Line]) -> list[list[_Line]]:
    """Lines of sub-agents: by their id, else by the line that each goes back to."""
    known = {line.uuid: line for line in lines}
    roots: dict[str, str] = {}
    found: dict[str, list[_Line]] = {}
    for line in lines:
        root = roots.get(line.parent, line.uuid) if line.parent in known else line.uuid
        roots[line.uuid] = root
        found.setdefault(line.agent or root, []).append(line)
    return list(found.values())


def _started(lines: Sequence[_Line]) -> tuple[dict[str, str], dict[str, str]]:
    """Calls that started sub-agents, by the agent's id (from the result) and by its prompt (from the arguments)."""
    by_agent: dict[str, str] = {}
    by_prompt: dict[str, str] = {}
    for line in lines:
        content = line.raw["message"].get("content")
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_use" and block.get("name") in _DELEGATES:
                given = block.get("input")
                if isinstance(given, dict) and isinstance(given.get("prompt"), str):
                    by_prompt[given["prompt"]] = str(block.get("id"))
            result = line.raw.get("toolUseResult")
            if block.get("type") == "tool_result" and isinstance(result, dict) and result.get("agentId"):
                by_agent[str(result["agentId"])] = str(block.get("tool_use_id"))
    return by_agent, by_prompt
