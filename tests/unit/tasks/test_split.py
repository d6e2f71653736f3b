"""The split by family."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.records import Split, Task
from flightschool.tasks import families_of, split_by_family, strata_of

QUICK = settings(max_examples=50, deadline=None)


def task(stratum: str, family: int, row: int) -> Task:
    name = f"{stratum}/{family}"
    return Task(id=f"{name}/{row}", family=name, stratum=stratum, instruction="Do it.", initial_state="s")


def grid(families: int, rows: int = 3, strata: str = "st") -> list[Task]:
    return [task(stratum, family, row) for stratum in strata for family in range(families) for row in range(rows)]


WORLDS = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 4), min_size=1, max_size=20), min_size=1).map(
    lambda strata: [
        task(stratum, family, row)
        for stratum, sizes in strata.items()
        for family, size in enumerate(sizes)
        for row in range(size)
    ]
)
PERCENT = st.integers(0, 50).map(lambda percent: percent / 100)
SHARES = st.tuples(PERCENT, PERCENT)


@QUICK
@given(WORLDS, SHARES, st.integers(0, 2**62))
def test_no_family_is_cut_and_shares_are_near(tasks: list[Task], shares: tuple[float, float], seed: int) -> None:
    suite, holdout = shares
    splits = split_by_family(tasks, suite=suite, holdout=holdout, seed=seed)
    assert list(splits) == [t.id for t in tasks]
    for members in families_of(tasks).values():
        assert len({splits[t.id] for t in members}) == 1
    wanted = {Split.SUITE: suite, Split.HOLDOUT: holdout, Split.POOL: 1 - suite - holdout}
    for members in strata_of(tasks).values():
        families = families_of(members)
        sides = [splits[members[0].id] for members in families.values()]
        if len(families) < 3:
            assert sides.count(Split.POOL) >= (wanted[Split.POOL] > 1e-6)
            continue
        for side, share in wanted.items():
            # Within one family of the request, or two where an empty side was filled from this one.
            assert abs(sides.count(side) - share * len(families)) < 2 + 1e-6 or share == 0
            assert (sides.count(side) >= 1) == (share > 1e-8)


@QUICK
@given(WORLDS, SHARES, st.integers(0, 2**62), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    tasks: list[Task], shares: tuple[float, float], seed: int, rng: random.Random
) -> None:
    shuffled = tasks[:]
    rng.shuffle(shuffled)
    first = split_by_family(tasks, suite=shares[0], holdout=shares[1], seed=seed)
    assert split_by_family(shuffled, suite=shares[0], holdout=shares[1], seed=seed) == first


def test_quotas_by_hand() -> None:
    splits = split_by_family(grid(8), suite=0.25, holdout=0.125, seed=0)
    for members in strata_of(grid(8)).values():
        sides = [splits[first.id] for first, *_ in families_of(members).values()]
        assert {side: sides.count(side) for side in Split} == {Split.POOL: 5, Split.SUITE: 2, Split.HOLDOUT: 1}


def test_small_shares_still_get_a_family_of_three() -> None:
    splits = split_by_family(grid(3, strata="s"), suite=0.01, holdout=0.01, seed=1)
    assert sorted(set(splits.values())) == sorted(Split)


def test_few_families_serve_the_pool_first() -> None:
    one = split_by_family(grid(1, strata="s"), suite=0.4, holdout=0.4, seed=0)
    assert set(one.values()) == {Split.POOL}
    two = split_by_family(grid(2, strata="s"), suite=0.4, holdout=0.4, seed=0)
    assert set(two.values()) == {Split.POOL, Split.SUITE}
    assert set(split_by_family(grid(2, strata="s"), suite=0, holdout=0, seed=0).values()) == {Split.POOL}


def test_everything_may_be_measured() -> None:
    splits = split_by_family(grid(4), suite=0.7, holdout=0.3, seed=0)
    assert set(splits.values()) == {Split.SUITE, Split.HOLDOUT}


def test_seeds_differ_and_strata_are_independent() -> None:
    tasks = grid(10)
    chosen = [
        frozenset(
            id_
            for id_, side in split_by_family(tasks, suite=0.3, holdout=0.1, seed=seed).items()
            if side is Split.SUITE
        )
        for seed in range(20)
    ]
    assert len(set(chosen)) > 15
    alone = split_by_family(strata_of(tasks)["s"], suite=0.3, holdout=0.1, seed=0)
    both = split_by_family(tasks, suite=0.3, holdout=0.1, seed=0)
    assert alone.items() <= both.items()


def test_every_family_gets_its_turn() -> None:
    """Over seeds each family is measured about as often as its share says."""
    tasks = grid(5, rows=1, strata="s")
    counts = dict.fromkeys((t.id for t in tasks), 0)
    for seed in range(300):
        for id_, side in split_by_family(tasks, suite=0.4, holdout=0.2, seed=seed).items():
            counts[id_] += side is Split.SUITE
    assert all(80 < count < 160 for count in counts.values())


def test_strata_and_families_keep_the_order_of_tasks() -> None:
    tasks = [task("b", 1, 0), task("a", 0, 0), task("b", 0, 0), task("b", 1, 1)]
    assert {name: [t.id for t in members] for name, members in strata_of(tasks).items()} == {
        "b": ["b/1/0", "b/0/0", "b/1/1"],
        "a": ["a/0/0"],
    }
    assert list(families_of(tasks)) == ["b/1", "a/0", "b/0"]


def test_bad_input_is_told() -> None:
    for suite, holdout in ((0.8, 0.3), (-0.1, 0.2), (0.2, 1.1), (float("nan"), 0.1)):
        with pytest.raises(InputError, match="shares"):
            split_by_family(grid(3), suite=suite, holdout=holdout, seed=0)
    with pytest.raises(InputError, match="one id"):
        split_by_family([task("s", 0, 0), task("s", 0, 0)], suite=0.2, holdout=0.2, seed=0)
    stray = Task(id="x", family="s/0", stratum="t", instruction="Do it.", initial_state="s")
    with pytest.raises(InputError, match="lies in strata"):
        split_by_family([task("s", 0, 0), stray], suite=0.2, holdout=0.2, seed=0)
    assert split_by_family([], suite=0.2, holdout=0.2, seed=0) == {}
