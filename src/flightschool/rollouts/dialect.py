"""How tools are written into text, for models whose chat template knows no tools.

One call a line, name then arguments as JSON, is the shortest form that parses without ambiguity; token cost
decides how fast a small model trains. Other dialects are other functions behind the same two-way contract:
``parse(render(calls))`` gives the calls back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from flightschool.records import Message, ToolCall, ToolSpec

__all__ = ["CompactDialect", "MalformedCallError"]

_CALL = re.compile(r"^\s*([A-Za-z_][\w.\-]*)\s*(\{.*)$", re.DOTALL)


class MalformedCallError(Exception):
    """The completion looks like a call but is none; ``text`` is what was written, the message what is wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text = text
        self.problem = problem


class CompactDialect:
    """``get_alert {"alert": "A-17"}``; results come back as ``Result: …``."""

    name = "compact"

    def system(self, content: str, tools: Sequence[ToolSpec]) -> str:
        """The system turn: guidance, the tools with their arguments, and the form of an answer."""
        lines = [content] if content else []
        if tools:
            lines.append("Tools:")
            lines += [_signature(tool) for tool in tools]
        return "\n".join(lines)

    def assistant(self, message: Message) -> str:
        """Text of an assistant message that was not sampled (worked examples, injected history)."""
        lines = [message.content] if message.content else []
        lines += [f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in message.tool_calls]
        return "\n".join(lines)

    def result(self, content: str) -> str:
        """Text of one tool result, shown in a user turn."""
        return f"Result: {content}"

    def grammar(self, tools: Sequence[ToolSpec]) -> str:
        """Grammar of completions that ``parse`` takes: prose, or calls whose arguments fit the tools' schemas."""
        return _grammar(tools)

    def parse(self, text: str, turn: int) -> Message:
        """The assistant message that a completion means. Ids of calls are made from the turn: equal on replay.

        Raises:
            MalformedCallError: a line begins like a call and its JSON is broken, or calls are mixed with prose.
        """
        lines = [line for line in text.strip().split("\n") if line.strip()]
        matches = [_CALL.match(line) for line in lines]
        if not any(matches):
            return Message(role="assistant", content=text.strip())
        calls = []
        for index, (line, match) in enumerate(zip(lines, matches, strict=True)):
            if match is None:
                raise MalformedCallError(text, f"line {index + 1} is no call: {line[:60]!r}")
            arguments = _arguments(text, match.group(2))
            calls.append(ToolCall(id=f"call_{turn}_{index}", name=match.group(1), arguments=arguments))
        return Message(role="assistant", tool_calls=tuple(calls))


_PROSE = r"""prose: LINE ("\n" LINE)*
LINE: /[^\n]*/ & ~/\s*[A-Za-z_][\w.\-]*\s*\{[^\n]*/
"""
"""Lines of which none begins like a call: such a line must be a call."""


def _grammar(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "start: prose\n" + _PROSE
    calls = "\n    | ".join(f"{json.dumps(tool.name + ' ')} %json {_arguments_schema(tool)}" for tool in tools)
    return f'start: prose | call ("\\n" call)*\ncall: {calls}\n{_PROSE}'


def _arguments_schema(tool: ToolSpec) -> str:
    """The tool's schema for the grammar: no line breaks between tokens, keywords that it does not know left out."""
    options = {"whitespace_pattern": "[ ]?", "lenient": True}
    return json.dumps({"type": "object", **tool.parameters, "x-guidance": options}, sort_keys=True)


def _signature(tool: ToolSpec) -> str:
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = set(tool.parameters.get("required", properties))
    names = ", ".join(name if name in required else f"{name}?" for name in properties)
    return f"{tool.name}({names}): {tool.description}"


def _arguments(text: str, source: str) -> dict[str, Any]:
    try:
        value = json.loads(source, parse_constant=_refuse_constant)
    except ValueError as error:
        raise MalformedCallError(text, f"arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedCallError(text, "arguments must be a JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
