"""Policies: whatever can stand behind a model endpoint.

A policy is opened once per attempt. Scripted policies answer with messages and write no spans; an engine policy
opens a session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.protocols import Engine, Environment, Tokenizer
from flightschool.records import Message, Task, TokenSpan, ToolCall, ToolSpec
from flightschool.rollouts.session import Session
from flightschool.rollouts.transcript import Sampling

__all__ = [
    "ConstantPolicy",
    "EnginePolicy",
    "MessagesPolicy",
    "NoopPolicy",
    "OraclePolicy",
    "Policy",
    "PolicyEndpoint",
    "RandomPolicy",
    "ScriptPolicy",
    "scripted_turns",
]


class PolicyEndpoint(Protocol):
    """A model endpoint of one attempt, with what the runner asks of it afterwards."""

    generation_ms: float
    """Virtual milliseconds spent in generation so far."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next assistant message."""
        ...

    def spans(self) -> tuple[TokenSpan, ...]:
        """Token spans written so far; empty for policies without tokens."""
        ...

    def close(self) -> None:
        """The attempt is over."""
        ...


class Policy(Protocol):
    """Opens an endpoint for each attempt."""

    @property
    def name(self) -> str:
        """What attempts record."""
        ...

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        """A fresh endpoint. Equal arguments give equal behaviour as far as the policy can promise it."""
        ...


class EnginePolicy:
    """A language model behind an engine."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        name: str,
        sampling: Sampling | None = None,
        keep_routing: Callable[[bytes], str] | None = None,
    ) -> None:
        self.name = name
        self._keep_routing = keep_routing
        self.engine = engine
        self.tokenizer = tokenizer
        self.sampling = sampling or Sampling()

    def endpoint(self, task: Task, seed: int, group: str) -> Session:
        """A session of its own."""
        key = f"{group}/{task.id}/{seed}"
        return Session(key, self.engine, self.tokenizer, self.sampling, seed, self._keep_routing)


class _Scripted:
    """Endpoint that plays prepared assistant messages, then ends with an empty one."""

    def __init__(self, replies: Iterator[Message]) -> None:
        self.generation_ms = 0.0
        self._replies = replies

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:  # noqa: ARG002
        return next(self._replies, Message(role="assistant"))

    def spans(self) -> tuple[TokenSpan, ...]:
        return ()

    def close(self) -> None:
        self._replies = iter(())


class _Reactive(_Scripted):
    """Endpoint of random behaviour: it needs to see the tools."""

    def __init__(self, seed: int, most_calls: int) -> None:
        super().__init__(iter(()))
        self._random = derive_random("random-policy", seed)
        self._left = self._random.randint(1, most_calls)
        self._turn = 0

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        if self._left == 0 or not tools:
            return Message(role="assistant", content="Done.")
        self._left -= 1
        self._turn += 1
        tool = self._random.choice(list(tools))
        words = [word.strip(".,;:") for message in messages[-1:] for word in message.content.split()] or ["x"]
        call = ToolCall(id=f"call_{self._turn}_0", name=tool.name, arguments=self._arguments(tool, words))
        return Message(role="assistant", tool_calls=(call,))

    def _arguments(self, tool: ToolSpec, words: list[str]) -> dict[str, Any]:
        properties: Mapping[str, Any] = tool.parameters.get("properties", {})
        return {name: self._value(schema, words) for name, schema in properties.items()}

    def _value(self, schema: Mapping[str, Any], words: list[str]) -> Any:
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if schema.get("type") in ("integer", "number"):
            return self._random.randint(0, 9)
        return self._random.choice(words)


def scripted_turns(calls: Sequence[ToolCall], answer: str) -> list[Message]:
    """One assistant message a call, then the answer."""
    turns = [Message(role="assistant", tool_calls=(call,)) for call in calls]
    return [*turns, Message(role="assistant", content=answer)]


class OraclePolicy:
    """Plays the reference solution. For audits and for scripted baselines, never for training data."""

    name = "oracle"

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """The oracle's turns."""
        reference = self._environment.reference(task.id)
        return _Scripted(iter(scripted_turns(reference.oracle, reference.oracle_answer)))


class NoopPolicy:
    """Says it is done and does nothing."""

    name = "noop"

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """One empty turn."""
        return _Scripted(iter([Message(role="assistant", content="Done.")]))


class RandomPolicy:
    """Calls random tools with arguments of the right type, values taken from what it reads."""

    name = "random"

    def __init__(self, most_calls: int = 4) -> None:
        self._most_calls = most_calls

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """A seeded random endpoint."""
        return _Reactive(seed, self._most_calls)


class ConstantPolicy:
    """Plays the same calls on every task."""

    def __init__(self, calls: Sequence[ToolCall], name: str = "constant", answer: str = "Done.") -> None:
        self.name = name
        self._turns = scripted_turns(calls, answer)

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """The same turns again."""
        return _Scripted(iter(self._turns))


class MessagesPolicy:
    """Plays given assistant messages task by task: recorded operators, replays of scripted attempts."""

    def __init__(self, turns: Mapping[str, Sequence[Message]], name: str) -> None:
        self.name = name
        self._turns = turns

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """The messages of this task; none if it has none."""
        return _Scripted(iter(self._turns.get(task.id, ())))


class _ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of a script: task id → list of turns, each a list of ``{name, arguments}`` or a final text."""

    tasks: dict[str, list[list[dict[str, Any]] | str]]


class ScriptPolicy(MessagesPolicy):
    """Plays a JSON script ``{"tasks": {TASK: [[{"name": …, "arguments": {…}}], "Done."]}}``.

    Raises:
        InputError: the file is missing or of another shape.
    """

    def __init__(self, path: Path) -> None:
        try:
            script = msgspec.json.decode(path.read_bytes(), type=_ScriptFile)
        except FileNotFoundError:
            raise InputError(
                "script not found", where=str(path), expected="a JSON script", mend="check the path"
            ) from None
        except msgspec.DecodeError as error:
            raise InputError(
                f"not a script: {error}",
                where=str(path),
                expected='{"tasks": {TASK: [[{"name": "…", "arguments": {…}}], "Done."]}}',
                mend="correct the file",
            ) from error
        turns = {task: [_turn(turn, n, path) for n, turn in enumerate(rows)] for task, rows in script.tasks.items()}
        super().__init__(turns, f"script:{path.name}")


def load_calls(path: Path) -> tuple[ToolCall, ...]:
    """Calls of a constant policy: a JSON array of ``{"name": …, "arguments": {…}}``.

    Raises:
        InputError: the file is missing or of another shape.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            "file of calls not found", where=str(path), expected="a JSON array", mend="check the path"
        ) from None
    except ValueError as error:
        raise InputError(
            f"not JSON: {error}", where=str(path), expected="a JSON array of calls", mend="correct the file"
        ) from error
    return _turn(rows, 0, path).tool_calls


def _turn(turn: list[dict[str, Any]] | str, number: int, path: Path) -> Message:
    if isinstance(turn, str):
        return Message(role="assistant", content=turn)
    calls = []
    for index, row in enumerate(turn):
        if not isinstance(row, dict) or not isinstance(row.get("name"), str) or set(row) - {"name", "arguments"}:
            raise InputError(
                f"turn {number} holds something that is no call",
                where=str(path),
                expected='{"name": "…", "arguments": {…}}',
                mend="correct the turn",
            )
        calls.append(ToolCall(id=f"call_{number}_{index}", name=row["name"], arguments=row.get("arguments", {})))
    return Message(role="assistant", tool_calls=tuple(calls))
