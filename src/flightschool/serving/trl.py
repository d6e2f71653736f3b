"""An ``environment_factory`` for TRL's ``GRPOTrainer``: one class whose methods are the tools.

TRL makes one instance a rollout, calls ``reset(**row)``, offers every public method to the model as a tool, and asks
``get_reward()`` when the rollout is over. Nothing of TRL is imported here. What it cannot be told otherwise:

- TRL never shows the environment the model's last message, so tasks that check an answer need ``final_answer``, which
  is among the tools;
- infrastructure that failed is ``None``: TRL makes it NaN, leaves it out of the group's mean and gives it no gradient.
  It is never 0.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import EndReason, Json, Outcome, ToolCall, ToolSpec
from flightschool.serving.episode import Judged, Offer, ServedEpisode
from flightschool.serving.tasks import TaskDesk

__all__ = ["environment_class", "training_rows"]

_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_OWN = ("reset", "get_reward")
_OVER = '{"error": "the episode is over"}'


class _Rollout:
    """One rollout; subclasses have the tools."""

    _offer: Offer
    _desk: TaskDesk

    def __init__(self) -> None:
        self._episode: ServedEpisode | None = None
        self._answer = ""
        self._lost = ""
        self._num_calls = 0

    def reset(self, **row: Any) -> None:
        """Begin the episode that a row names (``task_id``, and ``seed`` if there is one)."""
        if self._episode is not None:
            self._episode.close()
        asked = {key: row[key] for key in ("task_id", "seed", "split", "index") if row.get(key) is not None}
        choice = self._desk.choose(asked)
        self._answer, self._lost, self._num_calls = "", "", 0
        try:
            self._episode = self._offer.open(choice.task, seed=choice.seed)
        except InfrastructureError as error:
            self._episode, self._lost = None, str(error)

    def get_reward(self) -> float | None:
        """The judgement's total; None where infrastructure failed."""
        judged = self._judged()
        return None if judged is None or judged.reward is None else judged.reward.total

    def _judged(self) -> Judged | None:
        """How the rollout ended, in full; None if its world was never opened or broke."""
        episode = self._episode
        if episode is None or self._lost:
            return None
        judged = episode.finish(self._answer, EndReason.FINISHED)
        return None if judged.outcome is Outcome.INFRA_FAILURE else judged

    def _call(self, name: str, arguments: dict[str, Json]) -> str:
        episode = self._episode
        if episode is None or self._lost or episode.judged is not None:
            return _OVER
        self._num_calls += 1
        call = ToolCall(id=f"call_{self._num_calls}", name=name, arguments=arguments)
        try:
            (result,) = episode.act((call,))
        except InfrastructureError as error:
            self._lost = str(error)
            return _OVER
        return result.content

    def _finish(self, answer: str) -> str:
        episode = self._episode
        if episode is not None and not self._lost and episode.judged is None:
            self._answer = answer
            episode.finish(answer, EndReason.FINISHED)
        return '{"accepted": true}'


def environment_class(offer: Offer, desk: TaskDesk, name: str = "FlightschoolEnvironment") -> type[_Rollout]:
    """A class to be given as ``environment_factory``.

    Args:
        offer: what is served.
        desk: its tasks.
        name: under which TRL logs the reward.

    Raises:
        InputError: a tool whose name or arguments cannot be those of a Python method.
    """
    methods: dict[str, Callable[..., str]] = {spec.name: _method(spec) for spec in offer.specs}
    clash = sorted(set(methods) & {*_OWN, "final_answer"})
    if clash:
        raise InputError(
            f"the tool {clash[0]!r} has a name that is taken", where="tools", expected="another name", mend="rename it"
        )

    def final_answer(self: _Rollout, answer: str) -> str:
        """End the task with the final message. Nothing can be done afterwards.

        Args:
            answer: The final message.
        """
        return self._finish(answer)

    final_answer.__annotations__ = {"answer": str, "return": str}  # readers of type hints stumble over that of self
    return type(name, (_Rollout,), {**methods, "final_answer": final_answer, "_offer": offer, "_desk": desk})


def training_rows(desk: TaskDesk, split: str | None = None) -> list[dict[str, Any]]:
    """Rows of a data set for TRL: the opening of the built-in harness, and the task that it belongs to."""
    from flightschool.rollouts.harness import opening_messages

    rows = []
    for task in desk.tasks(split or desk.default):
        messages = [{"role": message.role, "content": message.content} for message in opening_messages(task)]
        rows.append({"prompt": [one for one in messages if one["content"]], "task_id": task.id})
    return rows


def _method(spec: ToolSpec) -> Callable[..., str]:
    """A method with the tool's name, annotated and documented as TRL reads it."""
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    required: Sequence[str] = spec.parameters.get("required", ())
    for word in (spec.name, *properties):
        if not word.isidentifier() or keyword.iskeyword(word) or word.startswith("_"):
            raise InputError(
                f"{word!r} cannot be a name in Python",
                where=f"tool {spec.name}",
                expected="letters, digits and _, not beginning with _",
                mend="rename it in the environment",
            )

    def method(self: _Rollout, **arguments: Any) -> str:
        given = {key: value for key, value in arguments.items() if value is not None}
        return self._call(spec.name, given)

    ordered = [*(key for key in properties if key in required), *(key for key in properties if key not in required)]
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for key in ordered:
        default = inspect.Parameter.empty if key in required else None
        kind = _TYPES.get(str(properties[key].get("type", "string")), str)
        parameters.append(
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        )
    told = "\n".join(f"    {key}: {properties[key].get('description') or key}" for key in ordered)
    method.__name__ = method.__qualname__ = spec.name
    method.__doc__ = f"{spec.description or spec.name}" + (f"\n\nArgs:\n{told}\n" if told else "\n")
    method.__annotations__ = {**{p.name: p.annotation for p in parameters[1:]}, "return": str}
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method
