"""Near copies: what is found, and what must not be; plain and under a key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.lineage import (
    CopyKind,
    Origin,
    Text,
    canaries_in,
    canary,
    count_kin,
    masked,
    minhash,
    near_copies,
    normalised,
    sign,
    similarity,
    suites_met,
)

ITEM = "Order two seals for pump P-104 and close work order WO-2201 as soon as the supplier has confirmed the price."
KEY = bytes(range(32))
WORDS = [f"{c}{v}{e}" for c in "bdfgklmnprst" for v in "aeiou" for e in "nrst"]


def text(seed: int, length: int = 20) -> str:
    return " ".join(derive_random("copies", seed).choices(WORDS, k=length))


def kinds(item: str, training: str) -> list[CopyKind]:
    return [found.kind for found in near_copies([Text(id="i", text=item)], [Text(id="t", text=training)])]


COPIES = [
    pytest.param(ITEM, CopyKind.EXACT, id="exact"),
    pytest.param(f"  {ITEM}\n", CopyKind.EXACT, id="layout"),
    pytest.param(ITEM.upper().replace(" ", "\n\t"), CopyKind.NORMALISED, id="case"),
    pytest.param(ITEM.replace("-", " - ").replace(".", "!?"), CopyKind.NORMALISED, id="signs"),
    pytest.param(ITEM.replace("P-104", "K-9/7").replace("2201", "17"), CopyKind.MASKED, id="other numbers"),
    pytest.param(f"{text(1, 60)} He said: {ITEM} {text(2, 60)}", CopyKind.NGRAM, id="quoted in a long text"),
    pytest.param(
        ITEM.replace("two seals", "two new seals").replace("the price", "its price"),
        CopyKind.NGRAM,
        id="two words more",
    ),
]


@pytest.mark.parametrize(("copy", "kind"), COPIES)
def test_copies_are_found_by_their_strongest_kind(copy: str, kind: CopyKind) -> None:
    assert kinds(ITEM, copy) == [kind]


@pytest.mark.parametrize(
    "other",
    [
        "Order a pump and have the old seal sent back to the supplier, who confirmed neither price nor day.",
        "Close work order WO-2201.",
        text(3),
        "",
    ],
)
def test_strangers_are_not_accused(other: str) -> None:
    assert kinds(ITEM, other) == []


def test_minhash_finds_what_runs_of_eight_miss() -> None:
    words = text(4, 60).split()
    changed = [word if place % 6 else f"{word}x" for place, word in enumerate(words)]
    found = kinds(" ".join(words), " ".join(changed))
    assert found in ([CopyKind.MINHASH], [])  # a sixth of the words changed: below .7 as a rule
    every_twentieth = [word if place % 20 != 10 else f"{word}x" for place, word in enumerate(words)]
    assert kinds(" ".join(words), " ".join(every_twentieth)) in ([CopyKind.NGRAM], [CopyKind.MINHASH])


def test_boilerplate_of_many_texts_proves_nothing() -> None:
    policy = text(5, 40)
    items = [Text(id="i", text=f"{policy} {text(6, 10)}")]
    training = [Text(id=f"t{n}", text=f"{policy} {text(100 + n, 40)}") for n in range(60)]
    assert near_copies(items, training) == ()


def test_short_texts_must_be_equal() -> None:
    assert kinds("Check alert A-1.", "Check alert A-2.") == [CopyKind.MASKED]
    assert kinds("Check alert A-1.", "Close alert A-1.") == []


def test_origins_are_kept_and_every_pair_is_told() -> None:
    training = [
        Text(id="trace-1", origin=Origin.TRACE, text=ITEM),
        Text(id="reward-1", origin=Origin.REWARD, text=ITEM.casefold()),
    ]
    found = near_copies([Text(id="i", text=ITEM)], training)
    assert [(one.source, one.origin, one.kind) for one in found] == [
        ("trace-1", "trace", "exact"),
        ("reward-1", "reward", "normalised"),
    ]
    assert str(found[0]) == "i in trace trace-1 (exact, 1.00)"


def test_forms() -> None:
    assert normalised("Ｆｕｌｌ—Width, ÉTÉ!") == "full width été"
    assert masked("Pay 120.50 EUR by 2026-05-01 for A17b/9.") == "pay # eur by # for #"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=5), st.lists(st.text(max_size=60), max_size=5))
def test_laws(items: list[str], training: list[str]) -> None:
    """Every text is its own copy; the order of the training side changes nothing but the order of findings."""
    left = [Text(id=f"i{n}", text=t) for n, t in enumerate(items)]
    right = [Text(id=f"t{n}", text=t) for n, t in enumerate(training)]
    assert {(f.item, f.source, f.kind) for f in near_copies(left, right)} == {
        (f.item, f.source, f.kind) for f in near_copies(left, right[::-1])
    }
    own = {f.item for f in near_copies(left, left)}
    assert {t.id for t in left if t.text.strip() and normalised(t.text)} <= own | {
        t.id for t in left if not t.text.strip()
    }


# ------------------------------------------------------------------------------------------------ minhash


@pytest.mark.parametrize("shared", [0, 30, 70, 95, 100])
def test_minhash_estimates_jaccard(shared: int) -> None:
    estimates = []
    for trial in range(12):
        one = {f"{trial}-{n}" for n in range(100)}
        other = {f"{trial}-{n}" if n < shared else f"x{trial}-{n}" for n in range(100)}
        estimates.append(similarity(minhash(one), minhash(other)))
    true = shared / (200 - shared)
    assert sum(estimates) / len(estimates) == pytest.approx(true, abs=0.05)


def test_minhash_of_nothing_and_under_keys() -> None:
    assert minhash([]) == ()
    assert similarity((), minhash(["a"])) == 0.0
    assert minhash(["a", "b"]) == minhash(["b", "a", "a"])
    assert similarity(minhash(["a", "b"], KEY), minhash(["a", "b"], b"other")) < 0.2
    with pytest.raises(InputError):
        minhash(["a"], bytes(65))


# ------------------------------------------------------------------------------------------------ under a key


@pytest.mark.parametrize(("copy", "kind"), COPIES)
def test_keyed_signatures_find_the_same(copy: str, kind: CopyKind) -> None:
    signature = sign(ITEM, KEY)
    counts = count_kin([signature, sign(text(7), KEY)], [Text(id="t", text=copy), Text(id="u", text=text(8))], KEY)
    assert (counts.num_items, counts.num_texts, counts.by_kind) == (2, 2, {str(kind): 1})
    assert count_kin([signature], [Text(id="t", text=copy)], bytes(32)).total == 0  # another key sees nothing


def test_counts_name_nobody_and_signatures_hold_no_text() -> None:
    import msgspec

    counts = count_kin([sign(ITEM, KEY)], [Text(id="a-name", text=ITEM)], KEY)
    assert b"a-name" not in msgspec.json.encode(counts)
    packed = msgspec.msgpack.encode(sign(ITEM, KEY))
    assert not any(word.encode() in packed for word in ITEM.split() if len(word) > 3)


# ------------------------------------------------------------------------------------------------ canaries


def test_canaries() -> None:
    one = canary("sha256:abc")
    assert one != canary("sha256:abd")
    assert canaries_in(f"# {one.upper()} and again {one}") == (one,)
    assert canaries_in("nothing here") == ()
    texts = [Text(id="clean", text=ITEM), Text(id="dirty", text=f"{ITEM} {one}")]
    assert suites_met(texts, ["sha256:abc", "sha256:abd"]) == {"sha256:abc": ("dirty",)}
