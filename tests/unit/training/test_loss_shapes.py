"""Every loss shape against a scalar one written from the papers' formulas in plain loops, values and slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flightschool.training.algorithms import ALGORITHMS, CORRECTIONS, Correction, KlTerm, LossShape
from flightschool.training.loss import LossSums, Members, policy_loss


@dataclass
class Token:
    """One sampled token: log-probabilities and the advantage."""

    new: float
    old: float
    mu: float
    reference: float
    advantage: float


def scalar_member(tokens: Sequence[Token], shape: LossShape) -> tuple[float, list[float]]:
    """Loss of one member's tokens, and d loss / d new of each."""
    anchors = [t.old if shape.proximal == "policy" else t.mu for t in tokens]
    ratios = [math.exp(t.new - anchor) for t, anchor in zip(tokens, anchors, strict=True)]
    if shape.ratio == "sequence":
        whole = math.prod(ratios) ** (1.0 / len(tokens))
        ratios = [whole] * len(tokens)
    factors = scalar_factors(tokens, shape.correction)
    share = 1.0 / len(tokens) if shape.denominator == "sequence_mean" else 1.0
    loss, slopes = 0.0, []
    for token, ratio, factor in zip(tokens, ratios, factors, strict=True):
        clipped = min(max(ratio, shape.ratio_low), shape.ratio_high)
        if shape.clip == "weight":
            gain, rise = clipped * token.advantage * token.new, clipped * token.advantage
        elif ratio * token.advantage <= clipped * token.advantage:
            gain, rise = ratio * token.advantage, ratio * token.advantage
        else:
            gain, rise = clipped * token.advantage, 0.0
        d = token.new - (token.mu if shape.kl.reference == "sampling" else token.reference)
        cost, slope = (math.exp(-d) - 1.0 + d, 1.0 - math.exp(-d)) if shape.kl.estimator == "k3" else (d, d)
        loss -= share * factor * (gain - shape.kl.weight * cost)
        slopes.append(-share * factor * (rise - shape.kl.weight * slope))
    return loss, slopes


def scalar_factors(tokens: Sequence[Token], correction: Correction) -> list[float]:
    weights = [math.exp(t.old - t.mu) for t in tokens]
    whole = math.prod(weights)
    geometric = whole ** (1.0 / len(weights))
    own = {"none": [1.0] * len(weights), "token": weights, "sequence": [whole] * len(weights)}[correction.weight]
    factors = [min(w, correction.cap) for w in own]
    held = {
        "none": [1.0] * len(weights),
        "token": weights,
        "sequence": [whole] * len(weights),
        "geometric": [geometric] * len(weights),
    }
    if correction.reject != "none":
        factors = [
            f if correction.low <= h <= correction.high else 0.0
            for f, h in zip(factors, held[correction.reject], strict=True)
        ]
    if any(w < correction.veto for w in weights):
        factors = [0.0] * len(factors)
    if -math.log(geometric) > correction.opsm_delta:
        factors = [0.0 if t.advantage < 0.0 else f for t, f in zip(tokens, factors, strict=True)]
    return factors


def draw(seed: int, lengths: Sequence[int], spread: float = 0.4) -> list[list[Token]]:
    generator = torch.Generator().manual_seed(seed)

    def noise() -> float:
        return spread * float(torch.randn((), generator=generator))

    members = []
    for place, length in enumerate(lengths):
        rows = []
        for _ in range(length):
            base = -1.0 - abs(noise())
            rows.append(Token(base, base + noise(), base + noise(), base + noise(), (-1.0) ** place * (1.0 + place)))
        members.append(rows)
    return members


def columns(members: Sequence[Sequence[Token]]) -> tuple[dict[str, Tensor], Tensor]:
    tokens = [token for member in members for token in member]
    index = torch.tensor([place for place, member in enumerate(members) for _ in member])
    fields = ("new", "old", "mu", "reference", "advantage")
    return {f: torch.tensor([getattr(t, f) for t in tokens], dtype=torch.float64) for f in fields}, index


def tensor_loss(members: Sequence[Sequence[Token]], shape: LossShape) -> tuple[float, list[float], LossSums]:
    column, index = columns(members)
    new = column["new"].clone().requires_grad_(True)
    loss, sums = policy_loss(
        new,
        column["old"],
        column["mu"],
        column["advantage"],
        shape,
        members=Members(index),
        reference_M=column["reference"],
    )
    (slope,) = torch.autograd.grad(loss, new)
    return float(loss.detach()), slope.tolist(), sums


def agree(members: Sequence[Sequence[Token]], shape: LossShape) -> None:
    loss, slopes, _ = tensor_loss(members, shape)
    expected = [scalar_member(member, shape) for member in members]
    assert loss == pytest.approx(sum(value for value, _ in expected), abs=1e-6)
    assert slopes == pytest.approx([slope for _, row in expected for slope in row], abs=1e-6)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("seed", range(4))
def test_algorithms_agree_with_plain_loops(name: str, seed: int) -> None:
    agree(draw(seed, [5, 1, 3, 7]), ALGORITHMS[name].shape)
    agree(draw(seed, [4, 2], spread=1e-4), ALGORITHMS[name].shape)


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
@pytest.mark.parametrize("extra", [{}, {"veto": 0.5}, {"opsm_delta": 0.05}])
def test_corrections_agree_with_plain_loops(name: str, extra: dict[str, float]) -> None:
    correction = msgspec.structs.replace(CORRECTIONS[name], **extra)
    for seed, spread in product(range(3), (0.4, 0.01)):
        agree(draw(seed, [5, 1, 3, 7], spread), LossShape(correction=correction))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("reference", ["start", "sampling"])
@pytest.mark.parametrize("denominator", ["token_mean", "sequence_mean"])
def test_divergences_agree_with_plain_loops(estimator: str, reference: str, denominator: str) -> None:
    kl = msgspec.convert({"weight": 0.7, "estimator": estimator, "reference": reference}, KlTerm)
    shape = msgspec.structs.replace(LossShape(kl=kl), denominator=denominator)
    agree(draw(9, [5, 1, 3]), shape)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.sampled_from(sorted(ALGORITHMS)),
    st.sampled_from(sorted(CORRECTIONS)),
)
def test_any_mixture_agrees_with_plain_loops(seed: int, lengths: list[int], algorithm: str, correction: str) -> None:
    shape = msgspec.structs.replace(ALGORITHMS[algorithm].shape, correction=CORRECTIONS[correction])
    agree(draw(seed, lengths), shape)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.sampled_from(sorted(ALGORITHMS)), st.data())
def test_members_and_groups_may_stand_in_any_order(seed: int, name: str, data: st.DataObject) -> None:
    members = draw(seed, [3, 1, 4, 2])
    order = data.draw(st.permutations(range(4)))
    shape = ALGORITHMS[name].shape
    assert tensor_loss([members[i] for i in order], shape)[0] == pytest.approx(tensor_loss(members, shape)[0])


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_packs_of_whole_members_add_up(name: str) -> None:
    members = draw(3, [3, 1, 4, 2])
    shape = msgspec.structs.replace(ALGORITHMS[name].shape, correction=CORRECTIONS["sequence_mis"])
    total = LossSums()
    for part in (members[:1], members[1:]):
        total.add(tensor_loss(part, shape)[2])
    assert vars(total) == pytest.approx(vars(tensor_loss(members, shape)[2]))


# ------------------------------------------------------------------------------------------------ by hand


def test_gspo_by_hand() -> None:
    """ρ = (2, ½, 2): s = 2^(1/3) for all three; unclipped each token gets s/3."""
    members = [[Token(math.log(p) - 1.0, -1.0, -1.0, 0.0, 1.0) for p in (2.0, 0.5, 2.0)]]
    wide = msgspec.structs.replace(ALGORITHMS["gspo"].shape, ratio_low=0.1, ratio_high=9.0)
    loss, slopes, _ = tensor_loss(members, wide)
    assert loss == pytest.approx(-(2 ** (1 / 3)))
    assert slopes == pytest.approx([-(2 ** (1 / 3)) / 3] * 3)
    loss, slopes, sums = tensor_loss(members, ALGORITHMS["gspo"].shape)
    assert loss == pytest.approx(-1.0004)
    assert slopes == [0.0, 0.0, 0.0]
    assert sums.num_clipped == 3


def test_cispo_by_hand() -> None:
    members = [[Token(math.log(0.8), math.log(0.8), math.log(0.1), 0.0, 1.0)]]
    loss, slopes, sums = tensor_loss(members, ALGORITHMS["cispo"].shape)
    assert slopes == pytest.approx([-5.0])  # PPO's would be 0
    assert loss == pytest.approx(-5.0 * math.log(0.8))
    assert sums.num_clipped == 1


def test_decoupled_ppo_by_hand() -> None:
    members = [[Token(math.log(0.45), math.log(0.3), math.log(0.2), 0.0, 1.0)]]
    loss, slopes, _ = tensor_loss(members, ALGORITHMS["decoupled_ppo"].shape)
    assert loss == pytest.approx(-1.92)
    assert slopes == [0.0]


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("none", (1, 1, 1)),
        ("is", (1.5, 8, 0.6)),
        ("tis", (1.5, 2, 0.6)),
        ("icepop", (1.5, 0, 0.6)),
        ("sequence_tis", (2, 2, 2)),
        ("sequence_mis", (0, 0, 0)),
        ("geometric", (0, 0, 0)),
    ],
)
def test_corrections_by_hand(name: str, factors: tuple[float, ...]) -> None:
    members = [[Token(-3.0, -3.0, -3.0 - math.log(w), 0.0, 1.0) for w in (1.5, 8.0, 0.6)]]
    _, slopes, sums = tensor_loss(members, LossShape(correction=CORRECTIONS[name]))
    assert slopes == pytest.approx([-f for f in factors])
    assert sums.num_rejected == sum(f == 0 for f in factors)


def test_opsm_masks_only_bad_attempts_that_drifted_away() -> None:
    def one(drift: float, advantage: float) -> float:
        tokens = [Token(-2.0, -2.0, -2.0 + drift, 0.0, advantage)] * 2
        shape = LossShape(correction=Correction(weight="none", opsm_delta=1e-4))
        return tensor_loss([tokens], shape)[1][0]

    assert one(0.1, -1.0) == 0.0
    assert one(0.1, 1.0) == -1.0
    assert one(-0.1, -1.0) == 1.0


def test_switching_the_correction_off_changes_the_gradient() -> None:
    """The self-test of asynchrony: stale tokens have other slopes with the correction than without."""
    members = draw(5, [40, 40], spread=0.3)
    slopes = {name: tensor_loss(members, LossShape(correction=CORRECTIONS[name]))[1] for name in ("tis", "none")}
    gap = math.dist(slopes["tis"], slopes["none"]) / math.hypot(*slopes["none"])
    assert gap > 0.1
    fresh = [[freshened(t) for t in member] for member in members]
    same = {name: tensor_loss(fresh, LossShape(correction=CORRECTIONS[name]))[1] for name in ("tis", "none")}
    assert same["tis"] == pytest.approx(same["none"])


def freshened(token: Token) -> Token:
    """The token as if it were fresh: sampled under the trainer's own policy."""
    return Token(token.new, token.old, token.old, token.reference, token.advantage)


def test_whole_members_and_references_are_asked_for() -> None:
    row = torch.zeros(2)
    with pytest.raises(ValueError, match="whole members"):
        policy_loss(row, row, row, row, ALGORITHMS["gspo"].shape)
    with pytest.raises(ValueError, match="began with"):
        policy_loss(row, row, row, row, LossShape(kl=KlTerm(weight=0.1)))
