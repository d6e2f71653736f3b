"""What all packs begin with is computed once, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.training.test_trainer import random_group, trainer

from flightschool.training import stem as stem_module
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import Pack, Segment, Target, pack_groups
from flightschool.training.stem import LEAST_STEM, cut_stem, pack_over_stem

OPENING = tuple(place % 250 for place in range(LEAST_STEM + 30))


def opened(group: TrainGroup, opening: tuple[int, ...] = OPENING) -> TrainGroup:
    """The same group with a long beginning, which edited histories lack."""

    def with_opening(member: TrainMember) -> TrainMember:
        first, *others = member.spans
        first = msgspec.structs.replace(first, token_ids_T=opening + first.token_ids_T)
        return msgspec.structs.replace(member, spans=(first, *others))

    return msgspec.structs.replace(group, members=tuple(with_opening(member) for member in group.members))


def pack_of(tokens: list[int], predictor: int, *segments: Segment) -> Pack:
    target = Target(predictor, 0, -1.0, 1.0, 1.0, 0)
    return Pack(tokens, list(range(len(tokens))), list(segments), [target])


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stem_module, "LEAST_STEM", 2)
    first = pack_of([1, 2, 3, 4, 8], 3, Segment(0, 4, ()), Segment(4, 1, (0,)))
    second = pack_of([1, 2, 3, 5, 9, 7], 4, Segment(0, 4, ()), Segment(4, 1, (0,)), Segment(5, 1, ()))
    stem, (one, two) = cut_stem([first, second])
    assert stem == (1, 2, 3)
    assert (one.tokens_N, one.positions_N, one.stem_length, one.num_tokens) == ([4, 8], [3, 4], 3, 2)
    assert one.segments == [Segment(-3, 3, ()), Segment(0, 1, (0,)), Segment(1, 1, (0, 1))]
    assert two.segments == [*one.segments[:3], Segment(2, 1, ())], "another root does not see the stem"
    assert [one.targets[0].predictor, two.targets[0].predictor] == [0, 1]


def test_what_has_no_stem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stem_module, "LEAST_STEM", 2)
    pack = pack_of([1, 2, 3, 4], 3, Segment(0, 4, ()))
    assert cut_stem([pack]) == ((), [pack]), "one pack computes it once anyway"
    other = pack_of([1, 6, 3, 4], 3, Segment(0, 4, ()))
    assert cut_stem([pack, other]) == ((), [pack, other])
    routed = Pack([1, 2, 3], [0, 1, 2], [Segment(0, 3, ())], [], [b"x"] * 3)
    assert cut_stem([routed, routed]) == ((), [routed, routed]), "experts may differ"
    short = pack_of([1, 2, 3], 2, Segment(0, 3, ()))
    stem, packs = cut_stem([short, short])
    assert (stem, packs[0].tokens_N) == ((1, 2), [3]), "the last token predicts"


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(20, 400), st.integers(1, 3))
def test_packs_say_the_same_without_their_stem(seed: int, limit: int, num: int) -> None:
    groups = [opened(random_group(seed + place)) for place in range(num)]
    stem, packs = pack_over_stem(groups, newest_step=0, max_tokens=limit)
    whole = pack_groups(groups, newest_step=0)[0]
    assert sum(len(pack.targets) for pack in packs) == len(whole.targets)
    if stem:
        assert len(packs) > 1
        assert stem[: len(OPENING)] == OPENING[: len(stem)]
    for pack in packs:
        for target in pack.targets:
            assert 0 <= target.predictor < pack.num_tokens
        before = {index: segment for index, segment in enumerate(pack.segments) if segment.start < 0}
        assert set(before) == ({0} if stem else set())
        for segment in pack.segments:
            above = sum(pack.segments[parent].length for parent in segment.parents)
            if segment.start >= 0 and segment.length:
                assert pack.positions_N[segment.start] == above


def test_a_pack_keeps_half_its_size_beside_a_long_stem() -> None:
    groups = [opened(random_group(seed, size=6)) for seed in range(2)]
    stem, packs = pack_over_stem(groups, newest_step=0, max_tokens=100)
    assert len(stem) > 100
    assert max(pack.num_tokens for pack in packs) > 30, "more than one member each"


def alike(seed: int, length: int) -> TrainGroup:
    """Four members without edited histories, whose beginnings agree for ``length`` tokens."""
    group = random_group(seed)
    members = tuple(
        msgspec.structs.replace(member, spans=tuple(span for span in member.spans if span.id < 4))
        for member in group.members
    )
    return opened(TrainGroup(id=f"g{seed}", members=members), tuple(place % 250 for place in range(length)))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(LEAST_STEM, 400), st.integers(60, 500), st.integers(1, 4))
@example(0, 300, 290, 1)
def test_no_pack_is_longer_than_is_said(seed: int, length: int, limit: int, num: int) -> None:
    groups = [alike(seed + place, length) for place in range(num)]
    stem, packs = pack_over_stem(groups, newest_step=0, max_tokens=limit)
    room = max(limit - len(stem), limit // 2)
    for pack in packs:
        assert pack.num_tokens <= room or len({target.member for target in pack.targets}) == 1


def test_what_would_fit_into_one_longer_pack_keeps_its_stem() -> None:
    """341 tokens, at most 300 at once: four packs, a member each, since what they begin with is 290. Half of 300 beside
    that holds all of them; as one pack they would be longer than 300 and have no stem, hence two."""
    groups = [alike(0, 280)]
    stem, packs = pack_over_stem(groups, newest_step=0, max_tokens=300)
    assert len(stem) >= 280
    assert len(packs) == 2
    assert max(pack.num_tokens for pack in packs) <= 150


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("more", [{}, {"algorithm": "gspo"}, {"kl_weight": 0.1}, {"trained_layers": 1}])
def test_gradients_are_those_of_packs_that_compute_it_each(
    tiny_folder: Path, tmp_path: Path, switch_kernels: Callable[[str], None], more: dict[str, object], kernels: str
) -> None:
    switch_kernels(kernels)
    groups = [opened(random_group(seed)) for seed in range(2)]
    options: dict[str, Any] = {"max_pack_tokens": 256, **more}

    def accumulated(name: str, may_stem: bool) -> tuple[dict[str, torch.Tensor], float, int]:
        (tmp_path / name).mkdir()
        station = trainer(tiny_folder, tmp_path / name, **options)
        station._may_stem = may_stem
        done = station.accumulate(*groups)
        grads = {key: p.grad.clone() for key, p in station.model.named_parameters() if p.grad is not None}
        return grads, station._sums.loss, done.num_forward_tokens

    ours, loss, num_ours = accumulated("ours", True)
    expected, expected_loss, num_each = accumulated("each", False)
    assert num_ours < num_each - LEAST_STEM // 2
    assert loss == pytest.approx(expected_loss, rel=1e-5, abs=1e-5)
    assert ours.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(ours[key], gradient, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(("limit", "has_stem"), [(1280, False), (400, True)])
def test_bfloat16_under_a_long_prompt(tiny_folder: Path, tmp_path: Path, limit: int, has_stem: bool) -> None:
    """Whatever attends in float32, and padded batches in bfloat16."""
    groups = [opened(random_group(seed, size=12), tuple(place % 250 for place in range(300))) for seed in range(2)]
    found = {}
    for dtype in ("float32", "bfloat16"):
        (tmp_path / dtype).mkdir()
        station = trainer(tiny_folder, tmp_path / dtype, dtype=dtype, max_pack_tokens=limit, mismatch_floor=10.0)
        assert bool(station._packed(*groups)[0]) == has_stem
        station.accumulate(*groups)
        gradients = [tensor.grad for tensor in station._weights.trained if tensor.grad is not None]
        found[dtype] = torch.cat([gradient.float().flatten() for gradient in gradients])
    assert (found["bfloat16"] - found["float32"]).norm() < 0.05 * found["float32"].norm()
