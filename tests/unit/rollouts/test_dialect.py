"""The dialect's grammar allows what its parser takes, and nothing that its parser refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.engines import ChatTokenizer, LoadedModel, TorchEngine, get_model, load_model
from flightschool.engines.grammar import GrammarBook
from flightschool.engines.grammar_text import grammar_support
from flightschool.errors import InputError
from flightschool.records import Message, SpanKind, ToolCall, ToolSpec
from flightschool.rollouts import Sampling, Session
from flightschool.rollouts.dialect import CompactDialect
from flightschool.rollouts.transcript import CutTurnError

DIALECT = CompactDialect()
SET = ToolSpec(
    name="set_price",
    description="change a price",
    parameters={
        "type": "object",
        "properties": {"item": {"type": "string"}, "price": {"type": "integer"}},
        "required": ["item", "price"],
        "additionalProperties": False,
    },
)
DECLINE = ToolSpec(name="decline", description="refuse", parameters={"properties": {"reason": {"type": "string"}}})


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model(get_model("tiny"))


@pytest.fixture(scope="module")
def book(tiny: LoadedModel) -> GrammarBook:
    return GrammarBook(tiny.tokenizer, tiny.config.vocab)


def accepts(book: GrammarBook, tokenizer: ChatTokenizer, text: str, tools: tuple[ToolSpec, ...]) -> bool:
    walk = book.walk(DIALECT.grammar(tools))
    try:
        for token in (*tokenizer.encode(text), book.end_token_id):
            walk.advance(token)
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Done.", True),
        ("", True),
        ("The price is {3}.", True),
        ("two\nlines", True),
        ('set_price {"item": "pump", "price": 90}', True),
        ('set_price {"item":"pump","price":90}', True),
        ('set_price {"item": "a", "price": 3}\ndecline {"reason": "b"}', True),
        ('decline {"reason": "brace } and \\" quote"}', True),
        ('set_price {"item": "pump"}', False),
        ('set_price {"item": "pump", "price": "90"}', False),
        ('set_price {"item": "pump", "price": 90, "more": 1}', False),
        ('get_price {"item": "pump"}', False),
        ('set_price {"item": "pump", "price": 90', False),
        ('set_price {"item": "a", "price": 3}\nand prose', False),
        ('set_price {\n"item": "a", "price": 3}', False),
        ("  set_price {", False),
        ('prose\nset_price {"item": "a", "price": 3}', False),
    ],
)
def test_the_grammar_takes_prose_or_valid_calls(
    text: str, expected: bool, tiny: LoadedModel, book: GrammarBook
) -> None:
    assert accepts(book, tiny.tokenizer, text, (SET, DECLINE)) is expected
    if expected:
        DIALECT.parse(text, 0)


def test_without_tools_only_prose_is_left(tiny: LoadedModel, book: GrammarBook) -> None:
    assert accepts(book, tiny.tokenizer, "Hello, {x}", ())
    assert not accepts(book, tiny.tokenizer, "look {", ())


def test_what_the_dialect_writes_is_allowed(tiny: LoadedModel, book: GrammarBook) -> None:
    calls = (
        ToolCall(id="call_0_0", name="set_price", arguments={"item": 'a "b" \\ {c}', "price": -3}),
        ToolCall(id="call_0_1", name="decline", arguments={"reason": "line\nbreak"}),
    )
    text = DIALECT.assistant(Message(role="assistant", tool_calls=calls))
    assert accepts(book, tiny.tokenizer, text, (SET, DECLINE))


@pytest.mark.long
async def test_a_constrained_session_never_makes_a_malformed_call_and_records_its_support(tiny: LoadedModel) -> None:
    """At a temperature at which the free model writes nonsense."""
    engine = TorchEngine(tiny)
    opening = [Message(role="system", content="Use the tools."), Message(role="user", content="set_price pump")]
    grammar = DIALECT.grammar((SET, DECLINE))
    kinds: set[str] = set()
    for seed in range(6):
        sampling = Sampling(temperature=1.5, max_new_tokens=60, constrained=True)
        talk = Session(f"s{seed}", engine, tiny.tokenizer, sampling, seed)
        try:
            reply = await talk.complete(opening, [SET, DECLINE])
        except CutTurnError:
            continue  # a completion that met its limit says nothing about its form
        kinds.update(call.name for call in reply.tool_calls)
        (span,) = [span for span in talk.spans() if span.kind is SpanKind.COMPLETION]
        assert span.support == grammar_support(grammar)
        assert talk.grammars == {span.support: grammar}
        assert len(span.log_kept_mass_T) == len(span.token_ids_T)
        assert min(span.log_kept_mass_T) < -1e-3  # it was held to something
        for call in reply.tool_calls:
            _check_arguments(call.arguments, SET if call.name == "set_price" else DECLINE)
    assert kinds <= {"set_price", "decline"}


def _check_arguments(arguments: dict[str, Any], tool: ToolSpec) -> None:
    import jsonschema

    jsonschema.validate(json.loads(json.dumps(arguments)), {"type": "object", **tool.parameters})


def test_hundreds_of_tools_compile(tiny: LoadedModel, book: GrammarBook, tmp_path: Path) -> None:
    tools = tuple(ToolSpec(name=f"tool_{i}", description="", parameters=SET.parameters) for i in range(300))
    assert accepts(book, tiny.tokenizer, 'tool_299 {"item": "a", "price": 1}', tools)
    assert not accepts(book, tiny.tokenizer, 'tool_300 {"item": "a", "price": 1}', tools)
