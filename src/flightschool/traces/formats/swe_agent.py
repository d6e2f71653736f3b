"""SWE-agent trajectories (``.traj``): one JSON object an episode.

With function calling, ``history`` holds calls and answers. In text mode the model writes a command, and the answer
comes as a user message; each such pair becomes a call of a tool named ``command``. ``trajectory`` adds how long each
action took; since there is no clock, times are the sum of those durations. Demonstrations in the prompt are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flightschool.records import Json
from flightschool.traces.conversation import content_text, number, usage_of
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, place, table_at
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["COMMAND_TOOL", "SweAgentImporter"]

COMMAND_TOOL = "command"
"""Name of the tool that stands for an action written as text; its one argument is ``text``."""


class SweAgentImporter:
    """Importer of SWE-agent trajectories."""

    format = "swe-agent"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the file is named ``.traj``, or begins with the keys of a trajectory."""
        marks = (b'"trajectory"', b'"history"')
        return path.suffix == ".traj" or (any(m in head for m in marks) and b'"observation"' in head)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and line."""
        for index, (line, raw) in enumerate(json_objects(path)):
            yield _episode(raw, path, line, index)


def _episode(raw: dict[str, Any], path: Path, line: int, index: int) -> RecordedEpisode:
    where = place(path, line)
    history, steps = raw.get("history") or [], raw.get("trajectory") or []
    for name, found in (("history", history), ("trajectory", steps)):
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise broken(f"{name!r} is no list of objects", where, "a .traj file of SWE-agent", "re-export it")
    if not history and not steps:
        raise broken("there is neither history nor trajectory", where, "a .traj file of SWE-agent", "re-export it")
    kept = [message for message in history if not message.get("is_demo")]
    messages = list(_from_history(kept, steps)) if kept else list(_from_steps(steps))
    info = table_at(raw, "info")
    stats = table_at(info, "model_stats")
    table: dict[str, Json] = {key: info[key] for key in ("exit_status", "submission") if key in info}
    if isinstance(raw.get("environment"), str):
        table["environment"] = raw["environment"]
    named = raw.get("instance_id")
    return assemble(
        converse(messages, where, lenient=True),
        id=str(named or (path.stem if index == 0 else f"{path.stem}-{index}")),
        source=f"{path.name}:{line}",
        facts=facts_of(table | ({"task": named} if named else {}), where),
        usage=usage_of(
            {
                "input_tokens": stats.get("tokens_sent") or None,
                "output_tokens": stats.get("tokens_received") or None,
                "cost_usd": stats.get("instance_cost") or None,
            }
        ),
    )


def _from_history(history: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    durations = _durations(steps)
    now, asked, action = 0.0, "", 0
    times: dict[str, float] = {}
    for index, message in enumerate(history):
        role = message.get("role")
        if role == "assistant":
            calls = message.get("tool_calls")
            text = message.get("action")
            asked = ""
            if not calls and isinstance(text, str) and text.strip() and index + 1 < len(history):
                asked = f"action-{action}"
                calls = [_command(asked, text)]
            yield {
                "role": "assistant",
                "content": message.get("content"),
                "tool_calls": calls or [],
                "reasoning_content": _thinking(message),
            }
            if asked or calls:
                took = durations[action] if action < len(durations) else None
                times = {} if took is None else {"start_ms": round(now, 3), "end_ms": round(now + took, 3)}
                now += took or 0.0
                action += 1
        elif role == "tool" or (role == "user" and asked):
            ids = message.get("tool_call_ids") or [message.get("tool_call_id") or asked or None]
            for call_id in ids if isinstance(ids, list) else [ids]:
                yield {"role": "tool", "tool_call_id": call_id, "content": message.get("content"), **times}
            asked = ""
        else:
            yield {"role": role, "content": message.get("content")}


def _from_steps(steps: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Trajectories without a history: what was done and what came back."""
    now = 0.0
    for index, (step, took) in enumerate(zip(steps, _durations(steps), strict=True)):
        call_id = f"action-{index}"
        said = step.get("response") or step.get("thought")
        yield {"role": "assistant", "content": said, "tool_calls": [_command(call_id, str(step.get("action") or ""))]}
        text, _ = content_text(step.get("observation"))
        times = {} if took is None else {"start_ms": round(now, 3), "end_ms": round(now + took, 3)}
        now += took or 0.0
        yield {"role": "tool", "tool_call_id": call_id, "content": text, **times}


def _durations(steps: Sequence[dict[str, Any]]) -> list[float | None]:
    """Milliseconds of each action."""
    seconds = [number(step.get("execution_time")) for step in steps]
    return [None if one is None or one < 0 else one * 1000 for one in seconds]


def _command(call_id: str, text: str) -> dict[str, Json]:
    return {"id": call_id, "function": {"name": COMMAND_TOOL, "arguments": {"text": text}}}


def _thinking(message: dict[str, Any]) -> Json:
    blocks = message.get("thinking_blocks")
    if not isinstance(blocks, list):
        return None
    return "\n".join(str(block.get("thinking") or "") for block in blocks if isinstance(block, dict)) or None
