"""Putting people and imitators into an environment that was built from traces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flightschool.environments.built import BuiltEnvironment
from flightschool.environments.grouping import sort_trials
from flightschool.environments.traced import SCRIPTED, TracedContent, TracedEnvironment
from flightschool.environments.users import ASK_USER, UserScript, write_script
from flightschool.errors import ConfigError
from flightschool.models import ChatClient, ChatModel, Completion, Endpoint, parse_endpoint
from flightschool.records import Message
from flightschool.traces import TraceSet

__all__ = ["open_models", "peopled"]


def peopled(built: BuiltEnvironment, trace_set: TraceSet, user: str, imitation: str) -> BuiltEnvironment:
    """The environment with users that are asked, and with reads that are invented where nothing is known.

    Args:
        built: what was built from the traces, its fidelity measured: users and imitation change no recorded answer.
        trace_set: the recordings.
        user: ``scripted``, an endpoint, or empty.
        imitation: an endpoint, or empty.

    Raises:
        ConfigError: the environment's tasks are its own code's, it has a tool of that name, or code answers its calls.
        InputError: no endpoint of a text model.
    """
    environment = built.environment
    if not isinstance(environment, TracedEnvironment):
        raise ConfigError(
            "this environment's tasks are its own code's",
            where="--user" if user else "--imitate",
            expected="an environment from recordings or tool functions",
            mend="leave the option out",
        )
    content = environment.content
    if imitation:
        parse_endpoint(imitation)
        if content.code and not content.coded:
            raise ConfigError(
                "code answers all calls: there is nothing to imitate",
                where="--imitate",
                expected="an environment from recordings",
                mend="leave the option out",
            )
    if user:
        content = _with_users(content, trace_set, user)
    content = msgspec.structs.replace(content, imitation=imitation)
    changed = environment.with_content(content, open_models(content))
    return msgspec.structs.replace(built, environment=changed)


def _with_users(content: TracedContent, trace_set: TraceSet, user: str) -> TracedContent:
    if user != SCRIPTED:
        parse_endpoint(user)
    if any(tool.name == ASK_USER.name for tool in content.tools):
        raise ConfigError(
            f"the traces have a tool {ASK_USER.name!r} of their own",
            where="--user",
            expected="a tool of another name",
            mend="rename the tool in the traces, or leave --user out",
        )
    groups = sort_trials(trace_set.episodes, one_state=True).groups
    scripts = {task.id: write_script(task.id, groups[task.id]) for task in content.tasks}
    tasks = tuple(
        msgspec.structs.replace(
            task, instruction=scripts[task.id].opening, max_turns=_turns(task.max_turns, scripts[task.id])
        )
        for task in content.tasks
    )
    return msgspec.structs.replace(
        content, tasks=tasks, tools=(*content.tools, ASK_USER), scripts=tuple(scripts.values()), user=user
    )


def _turns(most: int, script: UserScript) -> int:
    """Turns with room for the questions that were asked in the recording."""
    return most + min(len(script.replies), most)


def open_models(content: TracedContent) -> dict[str, ChatModel]:
    """Clients of the language models that a content names. Raises ``InputError`` for a missing key."""
    named = {content.user, content.imitation} - {"", SCRIPTED}
    return {text: _OnDemand(parse_endpoint(text)) for text in sorted(named)}


class _OnDemand:
    """A text model that is connected to for each question: environments live long and are never closed."""

    def __init__(self, endpoint: Endpoint) -> None:
        endpoint.key()  # a missing key is told now, not in the middle of an episode
        self._endpoint = endpoint

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0, seed: int | None = None
    ) -> Completion:
        """The next assistant message (see ``ChatModel``)."""
        with ChatClient(self._endpoint) as client:
            return client.complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
