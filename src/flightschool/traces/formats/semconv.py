"""Names of the GenAI conventions: the current one first, then the names of older releases and of other dialects."""

from __future__ import annotations

from collections.abc import Mapping

from flightschool.records import Json

__all__ = ["ALIASES", "attribute"]

ALIASES: dict[str, tuple[str, ...]] = {
    "gen_ai.operation.name": ("llm.request.type",),
    "gen_ai.provider.name": ("gen_ai.system", "llm.vendor"),
    "gen_ai.conversation.id": (
        "session.id",
        "gen_ai.thread.id",
        "gen_ai.session.id",
        "traceloop.association.session_id",
    ),
    "gen_ai.agent.name": ("gen_ai.workflow.name", "traceloop.entity.name", "agent.name"),
    "gen_ai.request.model": ("llm.request.model", "llm.model_name"),
    "gen_ai.response.model": ("llm.response.model",),
    "gen_ai.system_instructions": ("gen_ai.system.instructions",),
    "gen_ai.input.messages": ("gen_ai.prompt",),
    "gen_ai.output.messages": ("gen_ai.completion",),
    "gen_ai.tool.definitions": ("gen_ai.request.tools", "llm.tools"),
    "gen_ai.tool.name": ("tool.name",),
    "gen_ai.tool.call.id": ("gen_ai.tool.id", "tool_call.id"),
    "gen_ai.tool.call.arguments": ("gen_ai.tool.arguments", "traceloop.entity.input", "input.value"),
    "gen_ai.tool.call.result": ("gen_ai.tool.result", "traceloop.entity.output", "output.value"),
    "gen_ai.usage.input_tokens": ("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt"),
    "gen_ai.usage.output_tokens": (
        "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "gen_ai.usage.cache_read.input_tokens": (
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "gen_ai.usage.cost": ("gen_ai.usage.cost_usd", "llm.cost.total", "operation.cost"),
    "gen_ai.evaluation.score.value": ("gen_ai.evaluation.score",),
}
"""Current name → names that mean the same, newest first. Cost has no name in the conventions; those in use are read."""


def attribute(attributes: Mapping[str, Json], name: str) -> Json:
    """The value under the current name or the first alias that is there; None if none is."""
    for known in (name, *ALIASES.get(name, ())):
        if (value := attributes.get(known)) is not None:
            return value
    return None
