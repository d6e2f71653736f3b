"""Replies of models, recorded once and given again: what was measured with a model can be measured again without it.

A reply is found by the words of its request, the random fence between data left out; so a request whose words have
changed since, be it by one character of what a program printed, has no recorded reply, and that is an error.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flightschool.errors import InfrastructureError, InputError
from flightschool.models import ChatModel, Completion
from flightschool.records import Message, Record

__all__ = ["RecordedModel", "RecordingModel", "request_key"]

_FENCE: Final = re.compile(r"^----- ([0-9a-f]{32})$", re.MULTILINE)
_BLANK: Final = "<fence>"


class _Line(Record, frozen=True, kw_only=True):
    """One recorded reply."""

    key: str
    text: str
    """With a blank in place of the fence."""


def _fence_of(messages: Sequence[Message]) -> str:
    found = next((match for message in messages if (match := _FENCE.search(message.content))), None)
    return "" if found is None else found[1]


def request_key(messages: Sequence[Message], seed: int | None) -> str:
    """What a reply is found by."""
    fence = _fence_of(messages)
    told = [
        (message.role, message.content.replace(fence, _BLANK) if fence else message.content) for message in messages
    ]
    return hashlib.sha256(msgspec.json.encode([told, seed])).hexdigest()


class RecordingModel:
    """Implements ``models.ChatModel``: asks another, and keeps what it said.

    Args:
        model: who is asked.
        file: replies, one JSON line each; lines are added.
    """

    def __init__(self, model: ChatModel, file: Path) -> None:
        self._model = model
        self._file = file
        self._lock = threading.Lock()

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0, seed: int | None = None
    ) -> Completion:
        """See ``models.ChatModel``."""
        said = self._model.complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
        fence = _fence_of(messages)
        text = said.text.replace(fence, _BLANK) if fence else said.text
        line = msgspec.json.encode(_Line(key=request_key(messages, seed), text=text)) + b"\n"
        with self._lock, self._file.open("ab") as out:
            out.write(line)
        return said


class RecordedModel:
    """Implements ``models.ChatModel`` by a file that ``RecordingModel`` wrote.

    Args:
        file: the replies.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        try:
            lines = [msgspec.json.decode(line, type=_Line) for line in file.read_bytes().splitlines()]
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"no recorded replies: {error}", where=str(file), expected="one JSON line a reply", mend="record anew"
            ) from error
        self._texts = {line.key: line.text for line in lines}
        self._file = file
        self.num_missing = 0
        """Requests without a recorded reply so far."""

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0, seed: int | None = None
    ) -> Completion:
        """See ``models.ChatModel``.

        Raises:
            InfrastructureError: nothing was recorded for this request.
        """
        del max_tokens, temperature
        text = self._texts.get(request_key(messages, seed))
        if text is None:
            self.num_missing += 1
            raise InfrastructureError(
                "no reply was recorded for a request of these words",
                where=str(self._file),
                expected="the tasks, words and rules that it was recorded with",
                mend="ask a model, and record its replies",
            )
        return Completion(text=text.replace(_BLANK, _fence_of(messages)), finish="stop")
