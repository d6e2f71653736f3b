"""Long records are packed in pieces: nobody who reads them sees a difference."""

from __future__ import annotations

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flightschool.records import Record
from flightschool.store import packing


class Item(Record, frozen=True, kw_only=True):
    name: str
    value: float | None = None


class Many(Record, frozen=True, kw_only=True):
    id: str
    items: tuple[Item, ...]
    numbers: list[int]
    notes: dict[str, int]
    rest: str = ""


class Tagged(msgspec.Struct, tag="many"):
    items: list[int]


class Wide(msgspec.Struct):
    """More fields than a short map holds."""

    a0: int = 0
    a1: int = 0
    a2: int = 0
    a3: int = 0
    a4: int = 0
    a5: int = 0
    a6: int = 0
    a7: int = 0
    a8: int = 0
    a9: int = 0
    b0: int = 0
    b1: int = 0
    b2: int = 0
    b3: int = 0
    b4: int = 0
    b5: int = 0
    items: tuple[int, ...] = ()


@given(
    num_items=st.integers(0, 70), numbers=st.lists(st.integers(-(2**40), 2**40), max_size=40), size=st.integers(1, 20)
)
def test_what_is_unpacked_is_what_one_encoding_gives(num_items: int, numbers: list[int], size: int) -> None:
    items = tuple(Item(name=f"n{index}", value=index / 7 if index % 3 else None) for index in range(num_items))
    record = Many(id="x", items=items, numbers=numbers, notes={"a": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "SLICE", size)
        packed = packing.pack(record)
    assert zstandard.ZstdDecompressor().decompress(packed) == msgspec.msgpack.encode(record)


def test_sequences_and_maps_of_every_length_have_their_head() -> None:
    for length in (4_097, 65_535, 65_536, 70_001):
        record = Wide(items=tuple(range(length)))
        assert zstandard.ZstdDecompressor().decompress(packing.pack(record)) == msgspec.msgpack.encode(record)


def test_what_is_no_plain_map_is_encoded_whole() -> None:
    record = Tagged(items=list(range(5_000)))
    assert zstandard.ZstdDecompressor().decompress(packing.pack(record)) == msgspec.msgpack.encode(record)


def test_the_checksum_notices_damage() -> None:
    packed = bytearray(packing.pack(Wide(items=tuple(range(9_000)))))
    packed[-1] ^= 1
    with pytest.raises(zstandard.ZstdError):
        zstandard.ZstdDecompressor().decompress(bytes(packed))
