"""Export as ATIF 1.8, one document a line: sub-agents nest, calls and answers stand in the step of their message.

The format has no place for outcome, task or flags of calls; they go where it lets writers put what is theirs, under
``extra.flightschool``. Equal episodes give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from flightschool.digest import canonical_json
from flightschool.records import Json, Message
from flightschool.traces.clock import instant_ms
from flightschool.traces.formats.openai_chat import chat_tool
from flightschool.traces.formats.own import call_extras, sequence_losses, shared_losses, turn_extras
from flightschool.traces.hints import metadata_table
from flightschool.traces.records import RecordedEpisode, RecordedTurn, Usage, total_usage

__all__ = ["atif_losses", "export_atif"]

_VERSION = "ATIF-v1.8"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}


def export_atif(episodes: Iterable[RecordedEpisode]) -> Iterator[bytes]:
    """One document a line. Episodes without messages are left out; ``atif_losses`` names them."""
    for episode in episodes:
        if episode.messages:
            yield canonical_json(_trajectory(episode)) + b"\n"


def atif_losses(episode: RecordedEpisode) -> list[str]:
    """Kinds of what the document does not hold."""
    lost = [*shared_losses(episode), *sequence_losses(episode)]
    if not episode.messages:
        lost.append("episodes without messages")
    return lost + [kind for child in episode.children for kind in atif_losses(child)]


def _trajectory(episode: RecordedEpisode) -> dict[str, Json]:
    models = [turn.model for turn in episode.turns if turn.model]
    agent: dict[str, Json] = {"name": str(episode.metadata.get("agent") or "unknown"), "version": "unknown"}
    if models:
        agent["model_name"] = models[-1]
    if episode.tools:
        agent["tool_definitions"] = [chat_tool(t, t.name in episode.stated_effects) for t in episode.tools]
    extra: dict[str, Json] = {"flightschool": metadata_table(episode)}
    if episode.relation:
        extra["relation"] = episode.relation
    document: dict[str, Json] = {
        "schema_version": _VERSION,
        "session_id": episode.id or "episode",
        "trajectory_id": episode.id or "episode",
        "agent": agent,
        "steps": _Steps(episode).build(),
        "final_metrics": _totals(episode),
        "extra": extra,
    }
    nested = [_trajectory(child) for child in episode.children if child.messages]
    return document | ({"subagent_trajectories": nested} if nested else {})


def _totals(episode: RecordedEpisode) -> dict[str, Json]:
    usage = total_usage(episode) or Usage()
    named = {
        "total_prompt_tokens": usage.input_tokens,
        "total_completion_tokens": usage.output_tokens,
        "total_cached_tokens": usage.cached_tokens,
        "total_cost_usd": usage.cost_usd,
    }
    steps = sum(message.role != "tool" for message in episode.messages)
    return {"total_steps": steps} | {key: value for key, value in named.items() if value is not None}


class _Steps:
    """Builds the steps of one episode."""

    def __init__(self, episode: RecordedEpisode) -> None:
        self.episode = episode
        self.calls = {call.id: call for call in episode.calls}
        self.turns = {turn.turn: turn for turn in episode.turns}
        self.origin = instant_ms(episode.started_at)
        self.started = {child.parent_call: child.id for child in episode.children if child.parent_call}

    def build(self) -> list[dict[str, Json]]:
        steps: list[dict[str, Any]] = []
        spoken = 0
        for message in self.episode.messages:
            if message.role == "tool":
                self._answer(steps, message)
                continue
            step: dict[str, Any] = {"source": _SOURCES[message.role], "message": message.content}
            if message.role == "assistant":
                step |= self._said(message, self.turns.get(spoken, RecordedTurn(turn=spoken)))
                spoken += 1
            steps.append({"step_id": len(steps) + 1, **step})
        return steps

    def _said(self, message: Message, turn: RecordedTurn) -> dict[str, Json]:
        step: dict[str, Json] = {}
        if turn.reasoning:
            step["reasoning_content"] = turn.reasoning
        if turn.model:
            step["model_name"] = turn.model
        at = self._instant(turn.end_ms)
        if at:
            step["timestamp"] = at
        usage = turn.usage or Usage()
        metrics = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cost_usd": usage.cost_usd,
        }
        known = {key: value for key, value in metrics.items() if value is not None}
        if known:
            step["metrics"] = known
        own = {k: v for k, v in turn_extras(turn).items() if k in ("model", "start_ms", "end_ms")}
        step["extra"] = {"flightschool": own}
        if message.tool_calls:
            step["tool_calls"] = [
                {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
                for call in message.tool_calls
            ]
        return step

    def _answer(self, steps: list[dict[str, Any]], message: Message) -> None:
        """Put an answer into the step that asked for it (the last that did)."""
        for step in reversed(steps):
            if any(call["tool_call_id"] == message.tool_call_id for call in step.get("tool_calls", ())):
                break
        else:
            return
        result: dict[str, Json] = {"source_call_id": message.tool_call_id, "content": message.content}
        call = self.calls.get(message.tool_call_id)
        if call is not None:
            result["extra"] = {"flightschool": call_extras(call)}
        if message.tool_call_id in self.started:
            result["subagent_trajectory_ref"] = [{"trajectory_id": self.started[message.tool_call_id]}]
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _instant(self, offset_ms: float | None) -> str:
        if self.origin is None or offset_ms is None:
            return ""
        return datetime.fromtimestamp((self.origin + offset_ms) / 1000.0, UTC).isoformat(timespec="milliseconds")
