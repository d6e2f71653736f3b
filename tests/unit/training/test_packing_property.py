"""Packing by property: whatever the forests, every token sees its own path and nothing else, and trains once."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import Pack, pack_groups
from flightschool.training.prefix_tree import LEAST_JOINED
from flightschool.training.shared_prefix import SharedPrefixAttention

KINDS = (SpanKind.PROMPT, SpanKind.OBSERVATION, SpanKind.COMPLETION)


@st.composite
def forests(draw: st.DrawFn) -> tuple[TokenSpan, ...]:
    """A prompt, then spans that follow any earlier one; sometimes a second root. Some openings are long enough for
    groups to be joined."""
    opening = range(draw(st.sampled_from([3, LEAST_JOINED + 1])))
    spans = [TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(*opening, *draw(_tokens)))]
    for id_ in range(1, draw(st.integers(2, 7))):
        if draw(st.integers(0, 9)) == 0:
            spans.append(TokenSpan(id=id_, parent=None, kind=SpanKind.PROMPT, token_ids_T=draw(_tokens)))
            continue
        kind, tokens = draw(st.sampled_from(KINDS[1:])), draw(_tokens)
        sampled = kind is SpanKind.COMPLETION
        spans.append(
            TokenSpan(
                id=id_,
                parent=draw(st.integers(0, id_ - 1)),
                kind=kind,
                token_ids_T=tokens,
                logprobs_T=(-1.0,) * len(tokens) if sampled else (),
                versions=(VersionRun(step=0, count=len(tokens)),) if sampled else (),
            )
        )
    return tuple(spans)


_tokens = st.lists(st.integers(0, 50), min_size=1, max_size=5).map(tuple)
groups = st.lists(forests(), min_size=1, max_size=4)


def context(spans: tuple[TokenSpan, ...], span: TokenSpan, place: int) -> tuple[int, ...]:
    """All tokens before a token, along its path."""
    by_id = {other.id: other for other in spans}
    tokens = span.token_ids_T[:place]
    while span.parent is not None:
        span = by_id[span.parent]
        tokens = span.token_ids_T + tokens
    return tokens


def seen(pack: Pack) -> torch.Tensor:
    """``[N, N]``: which flat token each flat token attends to, found by asking the attention itself.

    In float32 that is the native kernel, in float64 padded batches.
    """
    num = pack.num_tokens
    found = []
    for dtype in (torch.float32, torch.float64):
        eye = torch.eye(num, dtype=dtype).unsqueeze(1)
        zeros = torch.zeros(num, 1, num, dtype=dtype)
        found.append(SharedPrefixAttention(pack)(0, zeros, zeros, eye).squeeze(1) > 0)
    assert torch.equal(*found)
    return found[0]


@settings(max_examples=60, deadline=None)
@given(groups, st.sampled_from([1 << 30, 12]), st.integers(0, 4))
def test_every_target_has_its_own_context_and_trains_once(
    members: list[tuple[TokenSpan, ...]], limit: int, cut: int
) -> None:
    """The members are two groups, cut anywhere."""
    rows = tuple(TrainMember(attempt=f"a{i}", advantage=float(i), spans=spans) for i, spans in enumerate(members))
    expected = sorted(
        (float(i), context(spans, span, place), token)
        for i, spans in enumerate(members)
        for span in spans
        if span.kind is SpanKind.COMPLETION
        for place, token in enumerate(span.token_ids_T)
    )
    found = []
    halves = [TrainGroup(id="g", members=rows[:cut]), TrainGroup(id="h", members=rows[cut:])]
    for pack in pack_groups(halves, newest_step=0, max_tokens=limit):
        mask = seen(pack)
        for target in pack.targets:
            before = [n for n in range(pack.num_tokens) if mask[target.predictor, n]]
            assert [pack.positions_N[n] for n in before] == list(range(len(before)))  # no gaps, no doubles
            found.append((target.advantage, tuple(pack.tokens_N[n] for n in before), target.token_id))
    assert sorted(found) == expected
