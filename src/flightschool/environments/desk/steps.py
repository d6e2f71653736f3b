"""Playing the steps of a family on its world: the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flightschool.environments.desk.casting import Case
from flightschool.environments.desk.families import Family, Scalar
from flightschool.environments.desk.schema import StartState
from flightschool.environments.desk.toolset import TOOLS
from flightschool.environments.desk.world import DeskWorld
from flightschool.errors import ConfigError
from flightschool.records import Effect, Json, Record, ToolCall

__all__ = ["Played", "play"]

_IDENTITY = {tool.name: tool.name for tool in TOOLS}
_EFFECTS = {tool.name: tool.effect for tool in TOOLS}


class Played(Record, frozen=True, kw_only=True):
    """One step as it was played, by the desk's own tool names."""

    call: ToolCall
    value: Json
    """What the tool answered."""
    told: tuple[str, ...]
    """Arguments whose value the instruction tells; all others had to be read."""

    @property
    def reads(self) -> bool:
        """Whether the step changes nothing."""
        return _EFFECTS[self.call.name] is Effect.READ


def play(family: Family, case: Case, start: StartState) -> tuple[Played, ...]:
    """The right acts of a case, played from ``start``.

    Raises:
        ConfigError: the desk refused a step: the family is written wrongly.
    """
    world = DeskWorld(start, _IDENTITY)
    played: list[Played] = []
    for number, step in enumerate(family.steps_of(case.variant)):
        sources = {key: value for key, value in step.items() if key not in ("call", "only")}
        arguments = {key: _resolve(source, case.slots, played) for key, source in sources.items()}
        call = ToolCall(id=f"step_{number}", name=str(step["call"]), arguments=arguments)
        reply = world.execute(call)
        if reply.is_error:
            raise ConfigError(
                f"step {number + 1} is refused: {reply.value}",
                where=f"family {family.name}",
                expected="steps that the desk accepts",
                mend="correct its rows or steps",
            )
        told = tuple(key for key, source in sources.items() if not _is_read(source))
        played.append(Played(call=call, value=reply.value, told=told))
    world.close()
    return tuple(played)


def _is_read(source: Scalar) -> bool:
    head, dot, _ = str(source).partition(".")
    return bool(dot) and head.isdigit()


def _resolve(source: Scalar, slots: Mapping[str, Scalar], played: Sequence[Played]) -> Any:
    if not isinstance(source, str):
        return source
    if source.startswith("$"):
        return slots[source[1:]]
    if _is_read(source):
        number, field = source.split(".")
        answer = played[int(number) - 1].value[str(slots[field[1:]]) if field.startswith("$") else field]
        return answer[0] if isinstance(answer, list) else answer
    return source
