"""Endpoints and keys; what needs a server is in ``tests/integration/models``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.models import ChatClient, Endpoint, Retries, parse_endpoint


def test_a_reference_is_read_and_written() -> None:
    found = parse_endpoint("openai:https://host:8000/v1/#org/model-7b", key_env="MY_KEY")
    assert found == Endpoint(url="https://host:8000/v1", model="org/model-7b", key_env="MY_KEY")
    assert str(found) == "openai:https://host:8000/v1#org/model-7b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "openai:",
        "https://host/v1#m",
        "openai:host/v1#m",
        "openai:ftp://host/v1#m",
        "openai:https://host/v1",
        "openai:https://host/v1#",
        "openai:https://user:sk-secret@host/v1#m",
        "openai:https://host/v1?key=sk-secret#m",
        "openai:https://ho st/v1#m",
        "openai:https://host:port/v1#m",
    ],
)
def test_what_is_no_endpoint_is_refused_without_repeating_secrets(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_endpoint(text)
    assert "sk-secret" not in str(caught.value)


def test_the_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(url="http://127.0.0.1:1/v1", model="m", key_env="JUDGE_KEY")
    monkeypatch.setenv("JUDGE_KEY", " sk-secret \n")
    assert endpoint.key() == "sk-secret"
    assert "sk-secret" not in repr(endpoint)
    for bad in ("", "  ", "sk-\nx", "schlüssel"):
        monkeypatch.setenv("JUDGE_KEY", bad)
        with pytest.raises(InputError, match="JUDGE_KEY"):
            ChatClient(endpoint)
    assert Endpoint(url="http://127.0.0.1:1/v1", model="m", key_env="").key() == ""


def test_pauses_by_hand() -> None:
    retries = Retries(first_pause_s=0.5, longest_pause_s=3.0)
    assert [retries.pause_s(number, None, 1.0) for number in (1, 2, 3, 4, 9)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert retries.pause_s(3, None, 0.0) == 0.0
    assert retries.pause_s(1, 2.5, 0.1) == 2.5
    assert retries.pause_s(1, 1e9, 0.1) == 3.0


@given(st.integers(1, 60), st.none() | st.floats(-1e9, 1e9), st.floats(0.0, 1.0))
def test_no_pause_is_longer_than_the_longest(number: int, told: float | None, jitter: float) -> None:
    assert 0.0 <= Retries().pause_s(number, told, jitter) <= 30.0
