"""A team's own function for one tool, on the rows that inferred tools look at: rung L0 beside the others.

The function sees the tables as they stand in the state folder and may change them as it likes. What it touched is
compared with what was there, and goes into the rows, so that whatever is inferred of other tools sees it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping

from flightschool.environments.inferred import Answer, Database, Execute
from flightschool.records import Json, ToolCall
from flightschool.traces import looks_like_error, result_value

__all__ = ["ToolFunction", "call_function", "executions", "run_function"]

ToolFunction = Callable[..., Json]


def run_function(function: ToolFunction, call: ToolCall, database: Database) -> Answer:
    """Run a function on the state. What it raises is the domain's answer; what it changed before stays changed.

    Raises:
        InfrastructureError: it left something that is no state.
    """
    tables = _Tables(database)
    answer = call_function(function, tables, call)
    tables.settle()
    return answer


def call_function(function: ToolFunction, state: MutableMapping[str, Json], call: ToolCall) -> Answer:
    """What a function answers, or the error that it raises."""
    # the function may keep what it is given; the logged call must not change under it
    arguments = copy.deepcopy(call.arguments)
    try:
        value = function(state, **arguments)
    except Exception as error:  # noqa: BLE001  foreign tool code: its exceptions are answers of the domain
        text = str(error) or type(error).__name__
        return Answer({"error": text}, True)
    if isinstance(value, str):
        value = result_value(value)
        return Answer(value, looks_like_error(value))
    return Answer(value, False)


def executions(functions: Mapping[str, ToolFunction]) -> dict[str, Execute]:
    """What calls of tools with a function do to a state."""

    def execution(tool: str) -> Execute:
        return lambda arguments, database: run_function(
            functions[tool], ToolCall(id="", name=tool, arguments=arguments), database
        )

    return {tool: execution(tool) for tool in functions}


class _Tables(MutableMapping[str, Json]):
    """The state as a function sees it. Only what it touches is copied and compared."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._live: dict[str, Json] = {}
        self._gone: set[str] = set()

    def __getitem__(self, name: str) -> Json:
        if name in self._gone:
            raise KeyError(name)
        if name not in self._live:
            self._live[name] = self._database.content(name)
        return self._live[name]

    def __setitem__(self, name: str, value: Json) -> None:
        self._gone.discard(name)
        self._live[name] = value

    def __delitem__(self, name: str) -> None:
        self[name]
        self._live.pop(name)
        self._gone.add(name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in dict.fromkeys((*self._database.names(), *self._live)) if name not in self._gone])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def settle(self) -> None:
        """Put what was touched into the rows. A table that was deleted is an empty one."""
        for name in self._gone:
            self._live[name] = [] if isinstance(self._database.content(name), list) else {}
        for name, content in self._live.items():
            self._database.settle(name, content)
