"""LangSmith runs: JSON lines, a list, or ``{"runs": […]}``; runs may hold their ``child_runs``.

Runs of one ``trace_id`` make one episode. ``llm`` runs hold messages (of LangChain or of the provider), ``tool`` runs
calls. Feedback averages are labels; the first named like a verdict is the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.records import Json
from flightschool.traces.clock import instant_ms
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.formats.otlp import grouped_episodes
from flightschool.traces.formats.scores import outcome_of
from flightschool.traces.formats.span import Span
from flightschool.traces.loading import broken, place, result_value, table_at
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["LangSmithImporter"]

_OPERATIONS = {"llm": "chat", "tool": "execute_tool"}
_MOST_NESTED = 50


class LangSmithImporter:
    """Importer of LangSmith runs."""

    format = "langsmith"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has the keys of runs."""
        del path
        return b'"run_type"' in head and (b'"inputs"' in head or b'"outputs"' in head)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file, one a trace. Raises ``TraceError`` naming file and line."""
        return grouped_episodes(_spans(path), path)


def _spans(path: Path) -> Iterator[Span]:
    for line, raw in json_objects(path):
        where = place(path, line)
        runs: list[Any] = raw["runs"] if isinstance(raw.get("runs"), list) else [raw]
        for run in runs:
            yield from _nested(run, where, 0)


def _nested(run: Json, where: str, depth: int) -> Iterator[Span]:
    if not isinstance(run, dict) or not isinstance(run.get("id"), str) or not run["id"]:
        raise broken("a run has no id", where, "{id, run_type, inputs, outputs, …}", "re-export the runs")
    yield _span(run, f"{where} (run {run['id']})")
    children = run.get("child_runs")
    if isinstance(children, list) and depth < _MOST_NESTED:
        for child in children:
            below = {"trace_id": _trace(run), "parent_run_id": run["id"]}
            yield from _nested({**below, **child} if isinstance(child, dict) else child, where, depth + 1)


def _trace(run: dict[str, Any]) -> str:
    """The trace that a run belongs to; ``dotted_order`` begins with the root's id."""
    if isinstance(run.get("trace_id"), str) and run["trace_id"]:
        return str(run["trace_id"])
    order = run.get("dotted_order")
    if isinstance(order, str) and "Z" in order:
        return order.split(".", 1)[0].split("Z", 1)[1]
    parents = run.get("parent_run_ids")
    if isinstance(parents, list) and parents:
        return str(parents[0])
    return str(run.get("parent_run_id") or run["id"])


def _span(run: dict[str, Any], where: str) -> Span:
    kind = str(run.get("run_type") or "")
    start, end = (_nanoseconds(run.get(key), where) for key in ("start_time", "end_time"))
    attributes: dict[str, Json] = {}
    if kind in _OPERATIONS:
        attributes["gen_ai.operation.name"] = _OPERATIONS[kind]
    if kind == "llm":
        attributes |= _llm(run)
    elif kind == "tool":
        attributes |= _tool(run)
    parent = str(run.get("parent_run_id") or "")
    if not parent:
        attributes |= _root(run)
    return Span(
        trace=_trace(run),
        id=run["id"],
        parent=parent,
        name=str(run.get("name") or ""),
        start_ns=start,
        end_ns=end or start,
        attributes=attributes,
        events=(),
        failed=bool(run.get("error")) or run.get("status") == "error",
        dropped=False,
        where=where,
    )


def _root(run: dict[str, Any]) -> dict[str, Json]:
    """What is known of the task and the outcome."""
    stats = run.get("feedback_stats")
    stats = stats if isinstance(stats, dict) else {}
    averages = {key: value.get("avg") for key, value in stats.items() if isinstance(value, dict)}
    found = outcome_of({key: value for key, value in averages.items() if value is not None})
    if isinstance(run.get("reference_example_id"), str):
        found["metadata.task"] = run["reference_example_id"]
    metadata = table_at(table_at(run, "extra"), "metadata")
    found |= {f"metadata.{key}": value for key, value in metadata.items()}
    if run.get("tags"):
        found["metadata.tags"] = run["tags"]
    return found


def _llm(run: dict[str, Any]) -> dict[str, Json]:
    inputs, outputs = table_at(run, "inputs"), table_at(run, "outputs")
    extra = table_at(run, "extra")
    invocation = table_at(extra, "invocation_params")
    metadata = table_at(extra, "metadata")
    given = inputs.get("messages", inputs.get("input", inputs.get("prompts", inputs.get("prompt"))))
    table: dict[str, Json] = {
        "gen_ai.response.model": metadata.get("ls_model_name") or invocation.get("model"),
        "gen_ai.input.messages": to_chat(given, _ignore, role="user") or None,
        "gen_ai.output.messages": to_chat(_made(outputs), _ignore, role="assistant") or None,
        "gen_ai.tool.definitions": invocation.get("tools") or inputs.get("tools"),
        "gen_ai.usage.input_tokens": run.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": run.get("completion_tokens"),
        "gen_ai.usage.cost": run.get("total_cost"),
    }
    cost = table["gen_ai.usage.cost"]
    if isinstance(cost, str):
        table["gen_ai.usage.cost"] = result_value(cost)  # decimals are written as text
    return {key: value for key, value in table.items() if value is not None}


def _ignore(_: str) -> None:
    """Parts that are left out here are named when the messages are read a second time, as spans."""


def _made(outputs: dict[str, Any]) -> Json:
    """The message that a model run made."""
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    if isinstance(generations, dict):
        return generations.get("message") or {"role": "assistant", "content": generations.get("text")}
    choices = outputs.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0].get("message")
    for key in ("messages", "message", "output"):
        if outputs.get(key) is not None:
            return outputs[key]
    return outputs if outputs.keys() & {"content", "tool_calls"} else None


def _tool(run: dict[str, Any]) -> dict[str, Json]:
    inputs, outputs = run.get("inputs"), run.get("outputs")
    given: Json = inputs
    if isinstance(inputs, dict) and inputs.keys() == {"input"}:
        text = inputs["input"]
        given = _literal(text) if isinstance(text, str) else text
    result = outputs
    if isinstance(outputs, dict) and outputs.keys() == {"output"}:
        result = outputs["output"]
    call_id: Json = None
    if isinstance(result, dict):
        body = next((result[key] for key in ("kwargs", "data") if isinstance(result.get(key), dict)), result)
        if "tool_call_id" in body:
            call_id, result = body["tool_call_id"], body.get("content")
    if result is None and run.get("error"):
        result = str(run["error"])
    extra = table_at(run, "extra")
    table = {
        "gen_ai.tool.name": run.get("name"),
        "gen_ai.tool.call.id": call_id or extra.get("tool_call_id"),
        "gen_ai.tool.call.arguments": given,
        "gen_ai.tool.call.result": result,
    }
    return {key: value for key, value in table.items() if value is not None}


def _literal(text: str) -> Json:
    """Arguments written as text: JSON, or the display of a Python dictionary, which the framework writes."""
    parsed = result_value(text)
    if isinstance(parsed, str) and text.lstrip().startswith("{"):
        import ast

        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
        return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else text
    return parsed


def _nanoseconds(value: Json, where: str) -> int:
    if value is None:
        return 0
    found = instant_ms(value)
    if found is None:
        raise broken(f"{str(value)[:40]!r} is no time", where, "ISO 8601", "re-export the run")
    return round(found * 1000) * 1000
