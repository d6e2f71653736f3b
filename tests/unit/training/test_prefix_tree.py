"""The tree of shared prefixes: by hand, and whatever the prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightschool.training.prefix_tree import Branch, Key, num_pairs, num_tree_pairs, num_tree_tokens, prefix_tree


def key(text: str, group: int = 0, *, apart: bool = False) -> Key:
    return Key(tokens=tuple(map(ord, text)), group=group, apart=apart)


def told(branch: Branch, keys: list[Key]) -> list[object]:
    """The tokens of a branch, then what is below it."""
    text = "".join(map(chr, keys[branch.keys[0]].tokens[branch.start : branch.end]))
    return [text, *(told(child, keys) if isinstance(child, Branch) else child for child in branch.below)]


def test_groups_share_their_beginning_and_members_the_rest() -> None:
    keys = [key("stuab", 0), key("stuab", 0), key("stuc", 1)]
    assert told(prefix_tree(keys, 3), keys) == ["stu", ["ab", 0, 1], 2]
    assert num_tree_tokens(keys, 3) == 6
    assert num_tree_pairs(keys, 3) == (1 + 2 + 3) + (4 + 5) + 4  # s t u, a b below it, c below it


def test_groups_are_not_joined_for_a_few_tokens() -> None:
    keys = [key("stuab", 0), key("stuab", 0), key("stuc", 1), key("stuc", 1)]
    assert told(prefix_tree(keys, 4), keys) == ["", ["stuab", 0, 1], ["stuc", 2, 3]]
    assert num_tree_tokens(keys, 4) == 9


def test_two_of_three_are_joined_where_the_third_has_other_tools() -> None:
    keys = [key("aaaaaaab", 0), key("aaaaaaac", 1), key("az", 2)]
    assert told(prefix_tree(keys, 5), keys) == ["", ["aaaaaaa", 0, 1], 2]


def test_equal_prompts_of_two_groups_stand_once_unless_they_must_stay_apart() -> None:
    keys = [key("abcd", group) for group in (0, 0, 1, 1)]
    assert told(prefix_tree(keys, 4), keys) == ["abcd", ["", 0, 1], ["", 2, 3]]
    apart = [key("abcd", group, apart=True) for group in (0, 0, 1, 1)]
    assert told(prefix_tree(apart, 4), apart) == ["", ["abcd", 0, 1], ["abcd", 2, 3]]
    short = [key("abcd", group) for group in (0, 0, 1, 1)]
    assert told(prefix_tree(short, 5), short) == ["", ["abcd", 0, 1], ["abcd", 2, 3]]


def test_a_token_sees_itself_and_all_before_it() -> None:
    assert num_pairs(2, 4) == 7
    assert num_pairs(0, 5) == 15
    assert num_pairs(3, 3) == 0


def test_one_key_stands_for_itself() -> None:
    assert prefix_tree([key("abc")]) == Branch(0, 0, (0,), (0,))
    assert num_tree_tokens([key("abc")]) == 3
    assert num_tree_tokens([]) == 0


prompts = st.lists(
    st.builds(key, st.text("ab", max_size=6), st.integers(0, 2), apart=st.booleans()), min_size=1, max_size=8
)


@given(prompts, st.integers(1, 5))
def test_every_key_reads_its_own_tokens_on_its_way_down(keys: list[Key], least: int) -> None:
    found: dict[int, tuple[int, ...]] = {}

    def walk(branch: Branch, above: tuple[int, ...]) -> None:
        assert branch.start == len(above)
        first = keys[branch.keys[0]]
        above += first.tokens[branch.start : branch.end]
        groups = {keys[place].group for place in branch.keys}
        if branch.end > branch.start and len(groups) > 1:
            assert branch.end - branch.start >= least
            assert not any(keys[place].apart for place in branch.keys)
        for child in branch.below:
            if isinstance(child, Branch):
                walk(child, above)
            else:
                found[child] = above + keys[child].tokens[len(above) :]
                assert keys[child].tokens[: len(above)] == above

    walk(prefix_tree(keys, least), ())
    assert found == {place: each.tokens for place, each in enumerate(keys)}
    assert max(len(each.tokens) for each in keys) <= num_tree_tokens(keys, least)
    assert num_tree_tokens(keys, least) <= sum(len(each.tokens) for each in keys)
