"""Whether tool calls survive a model's tokenizer, and whether a grammar can hold it to them."""

from __future__ import annotations

from flightschool.engines.onboarding import FolderCheck
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.records import Message, ToolCall, ToolSpec
from flightschool.rollouts.dialect import CompactDialect, MalformedCallError

__all__ = ["check_calls"]

_TOOLS = (
    ToolSpec(
        name="set_price",
        description="change a price",
        parameters={
            "type": "object",
            "properties": {"item": {"type": "string"}, "price": {"type": "number"}, "tags": {"type": "array"}},
            "required": ["item", "price"],
        },
    ),
    ToolSpec(name="decline", description="refuse", parameters={"properties": {"reason": {"type": "string"}}}),
)
_CALLS = (
    ToolCall(id="call_0_0", name="set_price", arguments={"item": "pump {A-17}", "price": 12.5, "tags": []}),
    ToolCall(id="call_0_1", name="decline", arguments={"reason": 'größer\n"quoted" \\ 价格'}),
)


def check_calls(tokenizer: ChatTokenizer) -> FolderCheck:
    """Calls, written as tokens and read back by the parser, are the calls that were written."""
    dialect = CompactDialect()
    text = dialect.assistant(Message(role="assistant", tool_calls=_CALLS))
    tokens = tokenizer.encode(text)
    try:
        back = dialect.parse(tokenizer.decode(tokens), 0).tool_calls
    except MalformedCallError as error:
        back, problem = (), str(error)
    else:
        problem = "other calls came back"
    passed = back == _CALLS
    return FolderCheck(
        name="tool calls",
        passed=passed,
        found=f"{len(_CALLS)} calls in {len(tokens)} tokens read back exactly" if passed else problem,
        expected="equal calls after tokenizer and parser",
        mend="" if passed else "the tokenizer drops or changes text: take the model's own tokenizer.json",
    )


def grammar_of_check() -> str:
    """The grammar of the tools above: whether it compiles for a tokenizer is asked by whoever may need llguidance."""
    return CompactDialect().grammar(_TOOLS)
