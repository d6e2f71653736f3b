from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.sandbox.node.frames import MOST_BODY_BYTES, FrameReader, pack

headers = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9), st.booleans()), max_size=4)


@given(st.lists(st.tuples(headers, st.binary(max_size=200)), max_size=5), st.integers(1, 50))
def test_frames_survive_any_cutting(frames: list[tuple[dict[str, object], bytes]], step: int) -> None:
    stream = b"".join(pack(header, body) for header, body in frames)
    reader = FrameReader()
    back = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert back == frames


def test_lengths_are_not_believed() -> None:
    for lengths in ((1 << 30, 0), (2, 1 << 31)):
        with pytest.raises(ValueError, match="too many"):
            list(FrameReader().feed(struct.pack("<II", *lengths)))
    with pytest.raises(ValueError, match="no object"):
        list(FrameReader().feed(struct.pack("<II", 2, 0) + b"[]"))
    with pytest.raises(ValueError, match="too long"):
        pack({}, memoryview(bytearray(MOST_BODY_BYTES + 1)))
