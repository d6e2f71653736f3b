from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import Pack, pack_group, pack_groups

MakeSpans = Callable[..., tuple[TokenSpan, ...]]


def group_of(*members: tuple[TokenSpan, ...]) -> TrainGroup:
    rows = [TrainMember(attempt=f"a{i}", advantage=float(i + 1), spans=spans) for i, spans in enumerate(members)]
    return TrainGroup(id="g", members=tuple(rows))


def sequences(pack: Pack) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Tokens of each path from root to leaf, with (predicting token, target) pairs of the whole pack's members."""
    parents = {p for segment in pack.segments for p in segment.parents}
    paths = []
    for i, segment in enumerate(pack.segments):
        if i in parents:
            continue
        tokens: list[int] = []
        for j in (*segment.parents, i):
            part = pack.segments[j]
            tokens += pack.tokens_N[part.start : part.start + part.length]
        paths.append(tokens)
    return [(tokens, []) for tokens in paths]


def test_shared_prompt_stands_once(make_spans: MakeSpans) -> None:
    (pack,) = pack_group(
        group_of(make_spans(turns=(((4, 5), ()),)), make_spans(turns=(((6, 7, 8), ()),))), newest_step=0
    )
    assert pack.tokens_N == [1, 2, 3, 4, 6, 7]  # the last token of a member is a target only
    assert pack.positions_N == [0, 1, 2, 3, 3, 4]
    assert [(t.predictor, t.token_id, t.advantage) for t in pack.targets] == [
        (2, 4, 1.0),
        (3, 5, 1.0),
        (2, 6, 2.0),
        (4, 7, 2.0),
        (5, 8, 2.0),
    ]


def test_observations_are_read_but_do_not_train(make_spans: MakeSpans) -> None:
    (pack,) = pack_group(group_of(make_spans(turns=(((4, 5), (6, 6)), ((7,), (9, 9))))), newest_step=0)
    assert [t.token_id for t in pack.targets] == [4, 5, 7]
    assert pack.tokens_N == [1, 2, 3, 4, 5, 6, 6]  # nothing after the last trained token


def test_branches_share_their_trunk_and_its_credit_counts_once(make_spans: MakeSpans) -> None:
    trunk = make_spans(turns=(((4, 5), (6,)),))
    leaves = tuple(
        TokenSpan(
            id=10 + i,
            parent=2,
            kind=SpanKind.COMPLETION,
            token_ids_T=(20 + i, 30 + i),
            logprobs_T=(-1.0, -1.0),
            versions=(VersionRun(step=0, count=2),),
        )
        for i in range(2)
    )
    (pack,) = pack_group(group_of((*trunk, *leaves)), newest_step=0)
    assert [t.token_id for t in pack.targets] == [4, 5, 20, 30, 21, 31]
    assert [tokens for tokens, _ in sequences(pack)] == [[1, 2, 3, 4, 5, 6, 20], [1, 2, 3, 4, 5, 6, 21]]


def test_a_second_tree_of_an_attempt_is_packed_beside_the_first(make_spans: MakeSpans) -> None:
    first = make_spans(turns=(((4, 5), ()),))
    second = tuple(
        msgspec.structs.replace(span, id=span.id + 10, parent=None if span.parent is None else span.parent + 10)
        for span in make_spans(prompt=(8, 9), turns=(((7,), ()),))
    )
    (pack,) = pack_group(group_of((*first, *second), make_spans(turns=(((6,), ()),))), newest_step=0)
    assert [t.token_id for t in pack.targets] == [4, 5, 7, 6]
    assert sorted(tokens for tokens, _ in sequences(pack)) == [[1, 2, 3], [1, 2, 3, 4], [8, 9]]


def test_members_are_split_when_a_pack_would_be_too_long(make_spans: MakeSpans) -> None:
    members = [make_spans(turns=((tuple(range(4, 14)), ()),)) for _ in range(4)]
    packs = pack_group(group_of(*members), newest_step=0, max_tokens=25)
    assert [len(pack.targets) for pack in packs] == [20, 20]
    assert all(pack.tokens_N[:3] == [1, 2, 3] for pack in packs)
    assert sum(len(p.targets) for p in pack_group(group_of(*members), newest_step=0)) == 40


SYSTEM = tuple(range(100, 120))


def test_groups_in_one_pack_share_their_system_turn(make_spans: MakeSpans) -> None:
    groups = [
        group_of(*(make_spans(prompt=(*SYSTEM, 40 + n, 50), turns=(((4, 5), ()),)) for _ in range(2))) for n in range(2)
    ]
    (pack,) = pack_groups(groups, newest_step=0)
    assert pack.tokens_N == [*SYSTEM, 40, 50, 4, 4, 41, 50, 4, 4]
    assert pack.positions_N == [*range(20), 20, 21, 22, 22, 20, 21, 22, 22]
    assert [t.member for t in pack.targets] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [t.advantage for t in pack.targets] == [1.0, 1.0, 2.0, 2.0] * 2


def test_groups_are_split_where_a_pack_would_be_too_long(make_spans: MakeSpans) -> None:
    groups = [
        group_of(*(make_spans(prompt=(*SYSTEM, 40 + n, 50), turns=(((4, 5), ()),)) for _ in range(2))) for n in range(3)
    ]
    packs = pack_groups(groups, newest_step=0, max_tokens=31)
    assert [[t.member for t in pack.targets] for pack in packs] == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]
    assert all(pack.num_tokens <= 31 for pack in packs)


def test_groups_with_recorded_experts_share_nothing_with_one_another(make_spans: MakeSpans) -> None:
    groups = [group_of(*(make_spans(prompt=(*SYSTEM, 50), turns=(((4, 5), ()),)) for _ in range(2))) for _ in range(2)]
    (pack,) = pack_groups(groups, newest_step=0, routes=lambda _: [b"x"] * 21)
    assert pack.tokens_N.count(SYSTEM[0]) == 2


def test_a_completion_needs_a_prompt(make_spans: MakeSpans) -> None:
    orphan = msgspec.structs.replace(make_spans()[1], parent=None)
    with pytest.raises(TokenContractError, match="nothing before it"):
        pack_group(group_of((orphan,)), newest_step=0)


BROKEN: list[tuple[str, dict[str, object]]] = [
    ("log-probabilities for 10", {"logprobs_T": ()}),
    ("log-probabilities for 10", {"logprobs_T": (-1.0,) * 9}),
    ("NaN", {"logprobs_T": (float("nan"),) * 10}),
    ("above 0", {"logprobs_T": (0.5,) * 10}),
    ("as if certain", {"logprobs_T": (0.0,) * 10}),
    ("do not cover", {"versions": (VersionRun(step=0, count=9),)}),
    ("do not cover", {"versions": ()}),
    ("never had", {"versions": (VersionRun(step=3, count=10),)}),
    ("restricted support", {"support": "grammar:x"}),
]


@pytest.mark.parametrize(("message", "fields"), BROKEN)
def test_what_is_not_token_exact_raises(make_spans: MakeSpans, message: str, fields: dict[str, object]) -> None:
    prompt, completion = make_spans(turns=((tuple(range(10)), ()),))
    broken = msgspec.structs.replace(completion, **fields)
    with pytest.raises(TokenContractError, match=message) as caught:
        pack_group(group_of((prompt, broken)), newest_step=2)
    assert "a0 span 1" in caught.value.where
