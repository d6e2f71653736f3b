"""Redaction: what must not stay is gone, equal values stay equal, JSON stays JSON, and plain ids are left alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError, StoreError
from flightschool.traces import Redactor, import_traces, read_names, redact_state, workspace_key
from flightschool.traces.redaction import find
from flightschool.traces.redaction.detectors import is_card, kind_of_key, luhn

KEY = bytes(range(32))


def redacted(value: Any, *names: str) -> Any:
    return Redactor(KEY, names).value(value)


class TestDetectors:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("write to ada.lovelace+x@mail.example.org today", "email"),
            ("grüße an jörg@müller.de", "email"),
            ("card 4111 1111 1111 1111 exp 12/30", "card"),
            ("card 4111111111111111", "card"),
            ("amex 3782-822463-10005", "card"),
            ("call +49 89 1234567 or", "phone"),
            ("call (415) 555-0132.", "phone"),
            ("call 415-555-0132", "phone"),
            ("call 089/123 45 67", "phone"),
            ("key AKIAIOSFODNN7EXAMPLE", "secret"),
            ("sk-proj-abcdefghijklmnopqrstuvwx", "secret"),
            ("Authorization: Bearer abcdef0123456789ABCDEF", "secret"),
            ("postgres://bob:hunter22@db.example/x", "secret"),
            ('{"password": "correct horse', "secret"),
            ("api_key=0123456789abcdef", "secret"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----", "secret"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0abc.c2lnbmF0dXJl", "secret"),
        ],
    )
    def test_found(self, text: str, kind: str) -> None:
        assert kind in {found for _, _, found in find(text)}

    @pytest.mark.parametrize(
        "text",
        [
            "order 4111111111111112",  # the check digit is wrong
            "order 9111111111111111",  # no issuer begins with 9
            "0000000000000000",
            "flight HAT001 on 2024-05-15 at 21:00:00",
            "reservation 4WQ150, payment credit_card_7434785, user mia_li_3668",
            "tracking 1Z999AA10123456784",
            "uuid 123e4567-e89b-12d3-a456-426614174000",
            "epoch 1700000000000 ms",
            "version 10.0.0.1, price 1234.5678, ip 192.168.100.200",
            "2024-05-15 2024-05-16",
            "commit 4111111111111111abcdef",
            "ISBN 978-3-16-148410-0",
            "a@b",
        ],
    )
    def test_left_alone(self, text: str) -> None:
        assert find(text) == []
        assert redacted(text) == text

    def test_luhn_by_hand(self) -> None:
        # 7992739871: doubling every second digit from the right of 79927398713 gives the sum 70.
        assert luhn("79927398713")
        assert not any(luhn(f"7992739871{digit}") for digit in "012456789")

    @given(st.from_regex(r"4[0-9]{14}", fullmatch=True))
    def test_every_number_has_one_check_digit(self, digits: str) -> None:
        assert sum(luhn(digits + str(d)) for d in range(10)) == 1

    def test_random_ids_seldom_pass_for_cards(self) -> None:
        from flightschool.digest import derive_random

        random = derive_random("ids")
        share = sum(is_card(str(random.randrange(10**15, 10**16))) for _ in range(20_000)) / 20_000
        # Issuers use prefixes of about .46 of all 16-digit numbers, and one in ten has the right check digit.
        assert 0.04 < share < 0.055

    @pytest.mark.parametrize(
        ("key", "kind"),
        [
            ("password", "secret"), ("dbPassword", "secret"), ("X-Api-Key", "secret"), ("token", "secret"),
            ("next_page_token", ""), ("num_tokens", ""), ("phone_number", "phone"), ("card_number", "card"),
            ("order_id", "other"), ("createdTimestamp", "other"), ("name", ""), ("passenger", ""),
        ],
    )  # fmt: skip
    def test_keys(self, key: str, kind: str) -> None:
        assert kind_of_key(key) == kind


class TestValues:
    def test_keys_tell_what_bare_values_are(self) -> None:
        given_value = {
            "phone": 4155550132, "card_number": "4000000000000000", "password": "x1y2", "order_id": 4111111111111111,
            "order": "4111111111111111", "n": 4111111111111111, "token": "short", "next_token": None,
        }  # fmt: skip
        value = redacted(given_value)
        assert [str(value[key])[:6] for key in ("phone", "card_number", "password", "n")] == [
            "PHONE_", "CARD_" + value["card_number"][5], "SECRET", "CARD_" + value["n"][5],
        ]  # fmt: skip
        assert (value["order_id"], value["order"]) == (4111111111111111, "4111111111111111")

    def test_equal_values_stay_equal_however_they_are_written(self) -> None:
        value = redacted(["Ada@Example.org", "see ada@example.org!", "4111 1111 1111 1111", "4111111111111111"])
        assert value[1] == f"see {value[0]}!"
        assert value[2] == value[3]
        assert redacted("ada@example.org") != Redactor(b"another key of a workspace").value("ada@example.org")

    def test_keys_of_objects_are_replaced_as_well(self) -> None:
        value = redacted({"ada@example.org": {"x": 1}})
        assert list(value) == [redacted("ada@example.org")]

    def test_json_in_texts_keeps_its_layout(self) -> None:
        for layout in ({}, {"separators": (",", ":")}, {"ensure_ascii": False}):
            text = json.dumps({"mail": "ada@example.org", "n": [1, "ü"]}, **layout)
            expected = json.dumps({"mail": redacted("ada@example.org"), "n": [1, "ü"]}, **layout)
            assert redacted(text) == expected
        assert redacted('{"a":  1.0}') == '{"a":  1.0}'  # nothing to do: not a byte changes

    def test_an_escape_before_a_match_does_not_break_the_json(self) -> None:
        text = json.dumps({"log": "to:\nada@example.org\n"})
        assert json.loads(redacted(text)) == {"log": f"to:\n{redacted('ada@example.org')}\n"}

    def test_names_from_a_list(self) -> None:
        value = redacted(["Mia Li called", "mia_li_3668", "MIA.LI@example.org", "Mia Lima", "Familia"], "Mia Li")
        name = value[0].removesuffix(" called")
        assert name.startswith("NAME_")
        assert value[1] == f"{name}_3668"
        assert value[2].startswith("EMAIL_")
        assert value[3:] == ["Mia Lima", "Familia"]


SECRETS = st.sampled_from(
    [
        "ada@example.org", "Bob.B@mail.example.com", "4111 1111 1111 1111", "5555555555554444", "+49 89 1234567",
        "(415) 555-0132", "AKIAIOSFODNN7EXAMPLE", "password=hunter22", "Mia Li", "mia_li_1",
    ]
)  # fmt: skip
PLAIN = st.text(max_size=6) | st.sampled_from([" ", ", ", "\n", '"', "{", "id 12", "_", "-", "."])
TEXT = st.lists(SECRETS | PLAIN, max_size=6).map("".join)
JSON = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["phone", "order_id", "password", "note", "ada@example.org"]), inner, max_size=3
        )
        | inner.map(json.dumps)
    ),
    max_leaves=8,
)


class TestProperties:
    @given(value=JSON)
    @settings(max_examples=300, deadline=None)
    def test_nothing_that_matches_remains(self, value: Any) -> None:
        once = redacted(value, "Mia Li")
        again = Redactor(KEY, ["Mia Li"])
        assert again.value(once) == once
        assert again.report().num_replaced == {}

    @given(value=JSON)
    @settings(max_examples=150, deadline=None)
    def test_json_stays_json_of_the_same_shape(self, value: Any) -> None:
        def shape(one: Any) -> Any:
            if isinstance(one, dict):
                return [shape(inner) for inner in one.values()]
            return [shape(inner) for inner in one] if isinstance(one, list) else None

        text = redacted(json.dumps(value), "Mia Li")
        if isinstance(value, dict | list):
            assert shape(json.loads(text)) == shape(value)

    @given(one=TEXT, other=TEXT)
    @settings(max_examples=100, deadline=None)
    def test_joins_survive(self, one: str, other: str) -> None:
        redactor = Redactor(KEY)
        assert redactor.value(one) == redactor.value({"k": [one]})["k"][0]
        if one == other:
            assert redactor.value(one) == redactor.value(other)


def test_an_episode_is_redacted_everywhere_and_goes_on_joining(tmp_path: Path) -> None:
    mail = "ada@example.org"
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": json.dumps({"mail": mail})}}
    line = {
        "messages": [
            {"role": "system", "content": f"Admin: {mail}"},
            {"role": "user", "content": f"I am {mail}"},
            {"role": "assistant", "content": None, "reasoning_content": mail, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"user": {"mail": mail, "id": 7}})},
        ],
        "tools": [
            {"name": "find", "description": f"as {mail}", "parameters": {"properties": {"mail": {"examples": [mail]}}}}
        ],
        "metadata": {"id": f"ep {mail}", "task": mail, "instruction": mail, "outputs": [mail], "who": mail,
                     "actions": [{"name": "find", "arguments": {"mail": mail}}], "labels": {"by": mail}},
    }  # fmt: skip
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(line))
    redactor = Redactor(KEY)
    (episode,) = redactor.episodes(import_traces(path).episodes)
    assert mail not in repr(episode)
    token = redacted(mail)
    assert episode.calls[0].arguments == {"mail": token} == episode.messages[2].tool_calls[0].arguments
    assert episode.calls[0].value == {"user": {"mail": token, "id": 7}}
    assert json.loads(episode.messages[3].content) == episode.calls[0].value
    assert episode.calls[0].id == "c1"
    report = redactor.report()
    assert report.num_distinct == {"email": 1}
    assert (report.num_episodes, report.num_episodes_touched) == (1, 1)
    assert {"system", "user", "arguments", "result", "metadata", "tools", "task"} <= report.places.keys()


class TestKeyAndState:
    def test_the_key_is_made_once_and_is_the_owners(self, tmp_path: Path) -> None:
        key = workspace_key(tmp_path)
        assert len(key) == 32
        assert workspace_key(tmp_path) == key
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_bytes(b"short")
        with pytest.raises(StoreError, match="damaged"):
            workspace_key(tmp_path)

    def test_state_goes_on_joining_with_traces(self, tmp_path: Path) -> None:
        state = tmp_path / "state"
        state.mkdir()
        (state / "users.json").write_text(json.dumps({"u1": {"mail": "ada@example.org"}}))
        assert redact_state(state, tmp_path / "out", Redactor(KEY)) == 1
        assert json.loads((tmp_path / "out" / "users.json").read_text()) == {
            "u1": {"mail": redacted("ada@example.org")}
        }
        with pytest.raises(InputError, match="cannot be written"):
            redact_state(state, tmp_path / "out", Redactor(KEY))
        with pytest.raises(InputError, match="not found"):
            redact_state(tmp_path / "nowhere", tmp_path / "new", Redactor(KEY))

    def test_lists_of_names(self, tmp_path: Path) -> None:
        path = tmp_path / "names.txt"
        path.write_text("# people\nMia Li\n\nMia Li\nAnn\n")
        assert read_names(path) == ("Mia Li", "Ann")
        path.write_text("Bo\nX\n")
        with pytest.raises(InputError, match="no name to look for") as caught:
            read_names(path)
        assert caught.value.where.endswith(":2")
        with pytest.raises(InputError, match="cannot be read"):
            read_names(tmp_path / "none")

    def test_a_short_key_is_refused(self) -> None:
        with pytest.raises(InputError, match="too short"):
            Redactor(b"abc")
