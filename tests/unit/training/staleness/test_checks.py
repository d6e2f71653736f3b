"""Self-tests of asynchrony: shuffled tags, a doubled lag, and tags that are possible but not true are each found."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.staleness import check_bound, check_fresh, check_tags, oldest_version


def chain(*runs: list[tuple[int, int]]) -> tuple[TokenSpan, ...]:
    """A prompt, then one completion for each list of (version, tokens)."""
    spans = [TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1,))]
    for rows in runs:
        count = sum(n for _, n in rows)
        spans.append(
            TokenSpan(
                id=len(spans),
                parent=len(spans) - 1,
                kind=SpanKind.COMPLETION,
                token_ids_T=(2,) * count,
                logprobs_T=(-1.0,) * count,
                versions=tuple(VersionRun(step=step, count=n) for step, n in rows),
            )
        )
    return tuple(spans)


def test_versions_that_only_rise_pass() -> None:
    spans = chain([(3, 2), (4, 1)], [(4, 2)], [(6, 1)])
    check_tags(spans, where="a", admitted=3, newest=6)
    assert oldest_version(spans) == 3
    assert oldest_version(spans[:1]) is None


@pytest.mark.parametrize(
    "spans", [chain([(4, 1), (3, 1)]), chain([(4, 1)], [(3, 1)]), chain([(2, 1)]), chain([(4, 1), (7, 1)])]
)
def test_impossible_tags_are_named(spans: tuple[TokenSpan, ...]) -> None:
    with pytest.raises(TokenContractError, match="version") as caught:
        check_tags(spans, where="g1:0", admitted=3, newest=6)
    assert "g1:0 span" in caught.value.where


def test_branches_are_followed_apart() -> None:
    trunk = chain([(3, 1)], [(5, 1)])
    branch = TokenSpan(
        id=3,
        parent=1,
        kind=SpanKind.COMPLETION,
        token_ids_T=(2,),
        logprobs_T=(-1.0,),
        versions=(VersionRun(step=4, count=1),),
    )
    spans = (*trunk, branch)
    check_tags(spans, where="a", admitted=3, newest=5)  # 4 comes after 3, not after the other branch's 5
    assert oldest_version(spans) == 3
    behind_the_other = msgspec.structs.replace(branch, parent=2)
    with pytest.raises(TokenContractError, match="version"):
        check_tags((*trunk, behind_the_other), where="a", admitted=3, newest=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=12), st.data())
def test_shuffled_tags_are_found(steps: list[int], data: st.DataObject) -> None:
    steps = sorted(steps)
    shuffled = data.draw(st.permutations(steps))
    check_tags(chain([(step, 1) for step in steps]), where="a", admitted=0, newest=5)
    assume(shuffled != steps)
    with pytest.raises(TokenContractError, match="follows one of version"):
        check_tags(chain([(step, 1) for step in shuffled]), where="a", admitted=0, newest=5)


def test_a_doubled_lag_is_beyond_the_bound() -> None:
    spans = chain([(4, 3)])
    check_bound(spans, where="a", version=6, max_staleness=2)
    with pytest.raises(TokenContractError, match="version 4 would train at version 8"):
        check_bound(spans, where="a", version=8, max_staleness=2)


def test_fresh_tokens_that_differ_like_old_ones_are_not_fresh() -> None:
    check_fresh(fresh=(0.001 * 500, 500), stale=(0.05 * 500, 500), floor=0.03, where="step 1")
    with pytest.raises(TokenContractError, match=r"0\.050 nats"):
        check_fresh(fresh=(0.05 * 500, 500), stale=(0.06 * 500, 500), floor=0.03, where="step 1")
    check_fresh(
        fresh=(0.05 * 500, 500), stale=(0.5 * 500, 500), floor=0.03, where="step 1"
    )  # a noisy engine, true tags
    with pytest.raises(TokenContractError):
        check_fresh(fresh=(0.2 * 500, 500), stale=(0.0, 0), floor=0.03, where="step 1")
    check_fresh(fresh=(9.0, 20), stale=(0.0, 0), floor=0.03, where="step 1")  # too few to tell
