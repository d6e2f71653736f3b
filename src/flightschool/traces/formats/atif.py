"""ATIF, the trajectory format of Harbor: one JSON document an episode (or one a line).

Read are versions 1.0 to 1.8; a later one is read alike and named. The format has no place for a reward; ours stands
under ``extra.flightschool``. Token ids and log-probabilities are named and left out: traces keep words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightschool.records import Json
from flightschool.traces.clock import Clock
from flightschool.traces.conversation import content_text, number, tool_specs, usage_of
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, place, table_at
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["AtifImporter"]

_VERSION = re.compile(r"ATIF-v1\.([0-8])(?:\.\d+)?")
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_MOST_NESTED = 8


class AtifImporter:
    """Importer of ATIF trajectories."""

    format = "atif"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file names a version of ATIF."""
        del path
        return b'"ATIF-v' in head

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and line."""
        for index, (line, raw) in enumerate(json_objects(path)):
            name = raw.get("trajectory_id") or raw.get("session_id") or f"{path.stem}-{index}"
            yield _Trajectory(raw, place(path, line), f"{path.name}:{line}").episode(str(name))


class _Trajectory:
    """One trajectory document."""

    def __init__(self, raw: dict[str, Any], where: str, source: str, depth: int = 0) -> None:
        self.raw = raw
        self.where = where
        self.source = source
        self.depth = depth
        self.issues: list[str] = []
        self.clock = Clock()
        self.called: dict[str, str] = {}
        """Id of a sub-agent's trajectory → the call that started it."""

    def episode(self, name: str) -> RecordedEpisode:
        version = self.raw.get("schema_version")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            self.issues.append(f"version {version!r} is unknown; read as ATIF-v1.8")
        steps = self.raw.get("steps")
        if not isinstance(steps, list) or not steps:
            raise broken("a trajectory has no steps", self.where, "steps: a list that is not empty", "re-export it")
        agent = table_at(self.raw, "agent")
        messages = [m for index, step in enumerate(steps) for m in self._step(step, index, agent.get("model_name"))]
        extra = table_at(self.raw, "extra")
        own = extra.get("flightschool")
        facts = facts_of(own if isinstance(own, dict) else extra, self.where)
        stated = usage_of(self.raw.get("final_metrics"))
        # Our own exports say whether the total was stated by the source or summed by us.
        usage = facts.usage if isinstance(own, dict) else stated
        episode = assemble(
            converse(messages, self.where, lenient=True),
            id=name,
            source=self.source,
            facts=facts,
            tools=tool_specs(agent.get("tool_definitions"), self.where),
            issues=self.issues,
            clock=self.clock,
            usage=usage,
            children=self._children(name),
        )
        if isinstance(own, dict):
            return episode
        named = {"agent": agent.get("name")} if agent.get("name") else {}
        return msgspec.structs.replace(episode, metadata={**episode.metadata, **named})

    def _step(self, step: Json, index: int, model: Json) -> Iterator[dict[str, Any]]:
        where = f"{self.where} (step {index + 1})"
        if not isinstance(step, dict) or step.get("source") not in _ROLES:
            raise broken("a step has no source", where, "source: system, user or agent", "mend the step")
        at = self.clock.at(step.get("timestamp"))
        role = _ROLES[step["source"]]
        results = self._results(step, where)
        message: dict[str, Any] = {"role": role, "content": step.get("message")}
        calls = step.get("tool_calls") or []
        if role == "assistant":
            message |= self._said(step, at, model)
            message["tool_calls"] = [self._call(call, where) for call in calls]
        yield message
        ids = [call.get("tool_call_id") for call in calls]
        for position, result in enumerate(results):
            yield self._result(result, ids[position] if position < len(ids) else None, at)

    def _said(self, step: dict[str, Any], at: float | None, model: Json) -> dict[str, Any]:
        metrics = table_at(step, "metrics")
        if any(metrics.get(key) for key in ("prompt_token_ids", "completion_token_ids", "logprobs")):
            self.issues.append("token ids and log-probabilities were left out")
        extra = table_at(step, "extra")
        own = extra.get("flightschool")
        said = {
            "reasoning_content": step.get("reasoning_content"),
            "model": step.get("model_name") or model,
            "usage": metrics,
            "end_ms": at,
        }
        if isinstance(own, dict):  # our own export: exactly what the record held
            said |= {"model": own.get("model"), "start_ms": own.get("start_ms"), "end_ms": own.get("end_ms")}
        return said

    def _call(self, call: Json, where: str) -> dict[str, Any]:
        if not isinstance(call, dict):
            raise broken("a tool call is no object", where, "{tool_call_id, function_name, arguments}", "mend it")
        function = {"name": call.get("function_name"), "arguments": call.get("arguments")}
        return {"id": call.get("tool_call_id"), "function": function}

    def _results(self, step: dict[str, Any], where: str) -> list[dict[str, Any]]:
        observation = step.get("observation")
        if observation is None:
            return []
        results = observation.get("results") if isinstance(observation, dict) else None
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise broken("an observation has no results", where, "observation.results: a list of objects", "mend it")
        return results

    def _result(self, result: dict[str, Any], asked: Json, at: float | None) -> dict[str, Any]:
        call_id = result.get("source_call_id") or asked
        text, skipped = content_text(result.get("content"))
        self.issues += [f"a part of type {kind} was left out" for kind in skipped]
        references = result.get("subagent_trajectory_ref") or []
        for reference in references if isinstance(references, list) else [references]:
            if isinstance(reference, dict):
                name = reference.get("trajectory_id") or reference.get("session_id")
                self.called[str(name)] = str(call_id or "")
        if not call_id:
            return {"role": "user", "content": text or ""}  # the world answers an action that is no function call
        message: dict[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": text or ""}
        extra = table_at(result, "extra")
        own = extra.get("flightschool")
        if isinstance(own, dict):
            return message | own
        if isinstance(extra.get("is_error"), bool):
            message["is_error"] = extra["is_error"]
        seconds = number(extra.get("duration_sec"))
        if at is not None and seconds is not None:
            message |= {"start_ms": at, "end_ms": round(at + seconds * 1000, 3)}
        return message

    def _children(self, name: str) -> tuple[RecordedEpisode, ...]:
        nested = self.raw.get("subagent_trajectories") or []
        if self.depth >= _MOST_NESTED or not isinstance(nested, list):
            return ()
        children = []
        for index, raw in enumerate(nested):
            if not isinstance(raw, dict):
                raise broken("a sub-agent's trajectory is no object", self.where, "a trajectory", "mend or remove it")
            own_name = str(raw.get("trajectory_id") or raw.get("session_id") or f"{name}/{index + 1}")
            extra = table_at(raw, "extra")
            child = _Trajectory(raw, f"{self.where} (sub-agent {index})", self.source, self.depth + 1).episode(own_name)
            relation = str(extra.get("relation") or "sub-agent")
            call = self.called.get(own_name, "")
            children.append(msgspec.structs.replace(child, relation=relation, parent_call=call))
        return tuple(children)
