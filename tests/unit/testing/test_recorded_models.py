"""Replies are found by the words of the request; the fence of the day does not count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flightschool.audit.terminal.proposing.dossier import block, new_fence
from flightschool.errors import InfrastructureError, InputError
from flightschool.models import Completion
from flightschool.records import Message
from flightschool.testing.recorded_models import RecordedModel, RecordingModel, request_key


def asked(what: str) -> tuple[str, tuple[Message, ...]]:
    fence = new_fence()
    return fence, (Message(role="user", content=f"{block('Data', what, fence)}\n\nThe fence is {fence}."),)


class Echo:
    """Says the fence and how often it was asked."""

    def __init__(self) -> None:
        self.num = 0

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0, seed: int | None = None
    ) -> Completion:
        del max_tokens, temperature, seed
        self.num += 1
        return Completion(text=messages[0].content.rsplit(" ", 1)[1] + f" {self.num}", finish="stop")


def test_what_was_recorded_is_said_again_under_another_fence(tmp_path: Path) -> None:
    model = RecordingModel(Echo(), tmp_path / "replies.jsonl")
    fence, request = asked("one")
    assert model.complete(request, seed=0).text == f"{fence}. 1"
    recorded = RecordedModel(tmp_path / "replies.jsonl")
    other, again = asked("one")
    assert recorded.complete(again, seed=0).text == f"{other}. 1"
    assert (recorded.num_missing, fence != other) == (0, True)


def test_other_words_or_another_try_are_another_request(tmp_path: Path) -> None:
    model = RecordingModel(Echo(), tmp_path / "replies.jsonl")
    model.complete(asked("one")[1], seed=0)
    recorded = RecordedModel(tmp_path / "replies.jsonl")
    for request, seed in ((asked("two")[1], 0), (asked("one")[1], 1)):
        with pytest.raises(InfrastructureError, match="no reply was recorded"):
            recorded.complete(request, seed=seed)
    assert recorded.num_missing == 2


def test_the_key_leaves_out_the_fence_and_nothing_else() -> None:
    first, second = asked("one")[1], asked("one")[1]
    assert request_key(first, 0) == request_key(second, 0) != request_key(first, 1)
    plain = (Message(role="user", content="no data"),)
    assert request_key(plain, 0) == request_key(plain, 0)


@pytest.mark.parametrize("content", [None, "no JSON\n", '{"key": 1}\n'])
def test_a_file_that_is_none(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "replies.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match="no recorded replies"):
        RecordedModel(file)
