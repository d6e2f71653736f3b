"""WebSocket frames against RFC 6455: its examples, any splitting of the bytes, and everything it forbids."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightschool.environments.openenv.frames import (
    Close,
    Frame,
    FrameError,
    FrameReader,
    Opcode,
    accept_key,
    close_frame,
    frame,
)


def test_the_examples_of_the_standard() -> None:
    """Section 1.3 (key) and 5.7 (frames)."""
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    hello = Frame(Opcode.TEXT, b"Hello")
    assert FrameReader(masked=False).feed(bytes.fromhex("810548656c6c6f")) == [hello]
    assert FrameReader(masked=True).feed(bytes.fromhex("818537fa213d7f9f4d5158")) == [hello]
    assert FrameReader(masked=False).feed(bytes.fromhex("010348656c80026c6f")) == [hello]
    assert frame(Opcode.TEXT, b"Hello") == bytes.fromhex("810548656c6c6f")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.binary(max_size=140), st.booleans()), max_size=6), st.integers(1, 97), st.booleans())
def test_any_splitting_gives_the_same_messages(parts: list[tuple[bytes, bool]], cut: int, masked: bool) -> None:
    sent = b"".join(frame(Opcode.TEXT if text else Opcode.BINARY, data, masked=masked) for data, text in parts)
    reader = FrameReader(masked=masked)
    found = [one for start in range(0, len(sent), cut) for one in reader.feed(sent[start : start + cut])]
    assert [(one.data, one.opcode is Opcode.TEXT) for one in found] == parts
    assert reader.is_idle


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
def test_every_length_form(size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    for masked in (True, False):
        assert FrameReader(masked=masked).feed(frame(Opcode.BINARY, data, masked=masked)) == [
            Frame(Opcode.BINARY, data)
        ]


def test_control_frames_may_stand_between_fragments() -> None:
    start, end = bytearray(frame(Opcode.TEXT, b"one ")), bytearray(frame(Opcode.CONTINUATION, b"two"))
    start[0] &= 0x7F
    reader = FrameReader(masked=False)
    found = reader.feed(bytes(start) + frame(Opcode.PING, b"?") + bytes(end))
    assert found == [Frame(Opcode.PING, b"?"), Frame(Opcode.TEXT, b"one two")]


def fragment(opcode: Opcode, data: bytes) -> bytes:
    made = bytearray(frame(opcode, data))
    made[0] &= 0x7F
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xc1\x00", Close.PROTOCOL_ERROR),  # a reserved bit
        (b"\x83\x00", Close.PROTOCOL_ERROR),  # an unknown opcode
        (frame(Opcode.TEXT, b"x", masked=True), Close.PROTOCOL_ERROR),  # masked where it must not be
        (frame(Opcode.CONTINUATION, b"x"), Close.PROTOCOL_ERROR),  # continues nothing
        (fragment(Opcode.TEXT, b"x") + frame(Opcode.TEXT, b"y"), Close.PROTOCOL_ERROR),  # a message within a message
        (fragment(Opcode.TEXT, b"") + frame(Opcode.TEXT, b"y"), Close.PROTOCOL_ERROR),
        (fragment(Opcode.PING, b""), Close.PROTOCOL_ERROR),
        (frame(Opcode.PING, b"x" * 126), Close.PROTOCOL_ERROR),
        (frame(Opcode.TEXT, b"x" * 1001), Close.TOO_BIG),
        (fragment(Opcode.TEXT, b"x" * 600) + frame(Opcode.CONTINUATION, b"x" * 600), Close.TOO_BIG),
        (b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", Close.TOO_BIG),  # is not waited for
    ],
    ids=itertools.count(),  # a mask is drawn anew each time; every worker must name the tests alike
)
def test_what_is_forbidden_ends_the_connection(data: bytes, code: Close) -> None:
    with pytest.raises(FrameError) as caught:
        FrameReader(masked=False, most_bytes=1000).feed(data)
    assert caught.value.code is code


def test_close_frames_carry_code_and_as_much_reason_as_fits() -> None:
    (closed,) = FrameReader(masked=False).feed(close_frame(Close.GOING_AWAY, "ö" * 200))
    assert closed.close_code == 1001
    assert len(closed.data) <= 125
    assert closed.data[2:].decode() == "ö" * 61
    assert Frame(Opcode.CLOSE, b"").close_code == 1005
