"""Simulated users: who asked, scripted from the recording; facts are told when they are asked for.

With a user, the task's instruction is only what the user said first; everything else is behind the tool ``ask_user``.
The scripted user answers a question with what the recorded user said to the question most like it, or with sentences
of the recorded brief that speak of the same things; equal questions get equal answers. A language model may speak
instead, behind an endpoint: more natural, and no longer the same every time unless its server is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from flightschool.digest import canonical_json, derive_seed
from flightschool.models import ChatModel
from flightschool.protocols import World, WorldReply
from flightschool.records import Message, Record, ToolCall, ToolSpec
from flightschool.traces import RecordedEpisode

__all__ = ["ASK_USER", "LanguageUser", "ScriptedUser", "TalkingWorld", "User", "UserScript", "write_script"]

ASK_USER = ToolSpec(
    name="ask_user",
    description="Say something to the user, or ask; the user's reply comes back.",
    parameters={
        "type": "object",
        "properties": {"message": {"type": "string", "description": "what you say to the user"}},
        "required": ["message"],
    },
    idempotent=True,
)
"""The conversation with the user as a tool; it changes nothing in the world."""

_LEAST_SHARED = 0.2
_MOST_FACTS = 2
_MOST_CHARACTERS = 1500
_NOTHING = "I have nothing to add to that."
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the a an and or of to in on for with you your i my me is are was be it this that as at can could would please "
        "have has do does not no yes if we our us will may what which how any",
    )
)


class UserScript(Record, frozen=True, kw_only=True):
    """What the user of one task knows."""

    task: str
    opening: str
    """What is said first: the instruction."""
    replies: tuple[tuple[str, str], ...]
    """(What the agent had said, what the user answered), as recorded."""
    facts: tuple[str, ...]
    """Sentences of the recorded brief."""


def write_script(task_id: str, episodes: Sequence[RecordedEpisode]) -> UserScript:
    """The script of a task, from its recorded trials; successes speak first."""
    ordered = sorted(episodes, key=lambda episode: (not episode.success, episode.id))
    opening = next((m.content for m in ordered[0].messages if m.role == "user"), "")
    replies: dict[tuple[str, str], None] = {}
    for episode in ordered:
        said = ""
        for message in episode.messages:
            if message.role == "assistant" and message.content:
                said = message.content
            elif message.role == "user" and said:
                replies.setdefault((said[:_MOST_CHARACTERS], message.content[:_MOST_CHARACTERS]))
                said = ""
    brief = ordered[0].hint.instruction
    return UserScript(task=task_id, opening=opening or brief, replies=tuple(replies), facts=tuple(_sentences(brief)))


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]


class User(Protocol):
    """Somebody who answers."""

    def reply(self, said: str) -> str:
        """What the user says to that."""
        ...


class ScriptedUser:
    """Answers from a script: the same words, the same answer."""

    def __init__(self, script: UserScript) -> None:
        self._script = script

    def reply(self, said: str) -> str:
        """The recorded reply to the question most like this one, else facts about the same things."""
        asked = _words(said)
        scored = [
            (_alike(asked, _words(question)), -number) for number, (question, _) in enumerate(self._script.replies)
        ]
        best, place = max(scored, default=(0.0, 0))
        if best >= _LEAST_SHARED:
            return self._script.replies[-place][1]
        facts = [(_alike(asked, _words(fact)), -number, fact) for number, fact in enumerate(self._script.facts)]
        told = [fact for share, _, fact in sorted(facts, reverse=True)[:_MOST_FACTS] if share > 0]
        return " ".join(told) or _NOTHING


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold())) - _COMMON


def _alike(left: frozenset[str], right: frozenset[str]) -> float:
    """Shared words by the geometric mean of both sizes: long questions do not win by their length."""
    return len(left & right) / (len(left) * len(right)) ** 0.5 if left and right else 0.0


class LanguageUser:
    """A language model that plays the user of a script.

    Args:
        script: what the user knows.
        model: the text model.
    """

    def __init__(self, script: UserScript, model: ChatModel) -> None:
        self._script = script
        self._model = model

    def reply(self, said: str) -> str:
        """What the model says in the user's place. Raises ``InfrastructureError`` when it gives no answer."""
        known = "\n".join((*self._script.facts, *(f"- {answer}" for _, answer in self._script.replies[:12])))
        system = (
            "You play a customer who talks to a service agent. Answer in one or two sentences, only from what you "
            f"know, and only what was asked. You began with: {self._script.opening}\nWhat you know:\n{known}"
        )
        messages = (Message(role="system", content=system), Message(role="user", content=said[:_MOST_CHARACTERS]))
        seed = derive_seed(self._script.task, canonical_json(said).decode()) % 2**31
        return self._model.complete(messages, max_tokens=200, temperature=0.0, seed=seed).text.strip()


class TalkingWorld:
    """A world with a user in it (``protocols.World``): answers ``ask_user``, passes on everything else."""

    def __init__(self, inner: World, user: User) -> None:
        self._inner = inner
        self._user = user

    def execute(self, call: ToolCall) -> WorldReply:
        """The user's reply, or the world's answer."""
        if call.name != ASK_USER.name:
            return self._inner.execute(call)
        said = call.arguments.get("message")
        if not isinstance(said, str) or not said.strip():
            return WorldReply(value={"error": "say something"}, is_error=True, served_by="user")
        return WorldReply(value=self._user.reply(said), served_by="user")

    def snapshot(self) -> bytes:
        """The world's state; the conversation is no part of it."""
        return self._inner.snapshot()

    def fork(self) -> TalkingWorld:
        """An independent copy with the same user."""
        return TalkingWorld(self._inner.fork(), self._user)

    def close(self) -> None:
        """Let the world's state go."""
        self._inner.close()
