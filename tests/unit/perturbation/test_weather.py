"""Seeded weather: the same for the same seed, independent of the past, at the declared rates, within its caps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import ConfigError, NotFoundError
from flightschool.perturbation import BUILT_IN, FAULT_KINDS, FaultProfile, FaultRule, SeededWeather, Window, profile
from flightschool.records import Effect, ToolCall, ToolResult, ToolSpec

READ = ToolSpec(name="get_tank", description="", parameters={})
WRITE = ToolSpec(name="fill_tank", description="", parameters={}, effect=Effect.WRITE)


def call(spec: ToolSpec) -> ToolCall:
    return ToolCall(id="c", name=spec.name, arguments={})


def drawn(weather: SeededWeather, spec: ToolSpec, index: int) -> str | None:
    strike = weather.strike(call(spec), spec, index, turn=0)
    return strike.fault.kind if strike else None


def one(kind: str, rate: float = 1.0, max_hits: int = 99, total: int = 99, **more: object) -> FaultProfile:
    rule = FaultRule(kind=kind, rate=rate, max_hits=max_hits, **more)  # type: ignore[arg-type]
    return FaultProfile(name="one", faults=(rule,), max_hits=total)


def hit(weather: SeededWeather, spec: ToolSpec, index: int) -> bool:
    """Let the weather strike for real; the world answers a plain success."""
    strike = weather.strike(call(spec), spec, index, turn=0)
    if strike is None:
        return False
    run: Callable[[], ToolResult] = lambda: ToolResult(call_id="c", content='{"a": [1, 2, 3]}')  # noqa: E731
    result, _ = strike.apply(run, (), call(spec))
    return result.fault is not None


# ------------------------------------------------------------------------------------------------ seeds


@given(seed=st.integers(0, 2**62), order=st.permutations(range(12)))
@settings(max_examples=30, deadline=None)
def test_a_draw_depends_on_seed_and_index_alone(seed: int, order: Sequence[int]) -> None:
    storm = BUILT_IN["storm"]
    forward = [drawn(SeededWeather(storm, seed), WRITE, index) for index in range(12)]
    other = SeededWeather(storm, seed)
    shuffled = {index: drawn(other, WRITE, index) for index in order}
    assert [shuffled[index] for index in range(12)] == forward


def test_other_seeds_give_other_weather() -> None:
    storm = BUILT_IN["storm"]
    patterns = {tuple(drawn(SeededWeather(storm, seed), WRITE, i) for i in range(12)) for seed in range(20)}
    assert len(patterns) > 10


def test_a_rule_added_at_the_end_moves_no_other_draw() -> None:
    rule = FaultRule(kind="rate_limited", rate=0.3, max_hits=99)
    alone = FaultProfile(name="a", faults=(rule,), max_hits=99)
    more = FaultProfile(name="b", faults=(rule, FaultRule(kind="server_error", rate=0.3, max_hits=99)), max_hits=99)
    for index in range(50):
        first = drawn(SeededWeather(alone, 5), READ, index)
        second = drawn(SeededWeather(more, 5), READ, index)
        assert first is None or first == second


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_rates_hold_within_binomial_bounds(rate: float) -> None:
    num_draws = 4000
    declared = one("rate_limited", rate)
    hits = sum(drawn(SeededWeather(declared, seed), READ, seed % 7) is not None for seed in range(num_draws))
    bound = 4.5 * math.sqrt(num_draws * rate * (1 - rate))
    assert abs(hits - num_draws * rate) <= bound


# ------------------------------------------------------------------------------------------------ filters and caps


def test_caps_count_what_really_happened() -> None:
    weather = SeededWeather(one("timeout_before_write", max_hits=2), seed=1)
    assert [hit(weather, WRITE, index) for index in range(5)] == [True, True, False, False, False]
    stale = SeededWeather(one("stale_read", max_hits=1), seed=1)  # there is no earlier state: it never happens
    assert [hit(stale, READ, index) for index in range(3)] == [False, False, False]
    assert [entry.applied for entry in stale.log] == [False, False, False]
    assert [entry.index for entry in stale.log] == [0, 1, 2]


def test_the_profile_caps_all_rules_together() -> None:
    rules = tuple(FaultRule(kind=kind, rate=1.0, max_hits=5) for kind in ("rate_limited", "server_error"))
    weather = SeededWeather(FaultProfile(name="x", faults=rules, max_hits=3), seed=1)
    assert [hit(weather, READ, index) for index in range(5)] == [True, True, True, False, False]


def test_no_attempt_meets_more_than_its_profile_allows() -> None:
    for name, declared in BUILT_IN.items():
        for seed in range(30):
            weather = SeededWeather(declared, seed)
            hits = sum(hit(weather, (READ, WRITE)[index % 2], index) for index in range(30))
            assert hits <= declared.max_hits, name


def test_windows_are_parts_of_the_episode() -> None:
    struck = {
        window: [
            index for index in range(8) if drawn(SeededWeather(one("rate_limited", window=window), 1), READ, index)
        ]
        for window in Window
    }
    assert struck == {
        Window.ANY: [0, 1, 2, 3, 4, 5, 6, 7],
        Window.EARLY: [0, 1],
        Window.MID: [2, 3],
        Window.LATE: [4, 5, 6, 7],
    }


def test_tools_and_effects_narrow_a_rule() -> None:
    assert drawn(SeededWeather(one("rate_limited", tools=("get_*", "list_*")), 1), READ, 0) == "rate_limited"
    assert drawn(SeededWeather(one("rate_limited", tools=("list_*",)), 1), READ, 0) is None
    assert drawn(SeededWeather(one("rate_limited", effects=(Effect.WRITE,)), 1), READ, 0) is None
    assert drawn(SeededWeather(one("rate_limited", effects=(Effect.WRITE,)), 1), WRITE, 0) == "rate_limited"
    assert drawn(SeededWeather(one("timeout_after_write"), 1), READ, 0) is None
    assert drawn(SeededWeather(one("stale_read"), 1), WRITE, 0) is None


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(kind="hail", rate=0.5),
        FaultRule(kind="rate_limited", rate=1.5),
        FaultRule(kind="rate_limited", rate=math.nan),
        FaultRule(kind="stale_read", rate=0.5, effects=(Effect.WRITE,)),
    ],
)
def test_weather_that_cannot_be_is_refused(rule: FaultRule) -> None:
    with pytest.raises(ConfigError, match=f"{rule.kind}"):
        SeededWeather(FaultProfile(name="x", faults=(rule,)), seed=0)


# ------------------------------------------------------------------------------------------------ profiles


def test_built_in_profiles_go_from_fair_to_foul() -> None:
    assert list(BUILT_IN) == ["clean", "noisy", "storm"]
    assert profile("clean").is_clean
    assert not profile("noisy").is_clean
    for name in ("noisy", "storm"):
        assert {rule.kind for rule in profile(name).faults} == set(FAULT_KINDS)
    hits = {
        name: sum(drawn(SeededWeather(declared, s), spec, 0) is not None for s in range(400) for spec in (READ, WRITE))
        for name, declared in BUILT_IN.items()
    }
    assert hits["clean"] == 0
    assert 120 < hits["noisy"] < 300 < hits["storm"] < 700


GOOD = """
name = "plant"
max_hits = 3
[[faults]]
kind = "stale_read"
rate = 0.25
tools = ["get_*"]
window = "late"
max_hits = 2
[[faults]]
kind = "rate_limited"
rate = 1
effects = ["write", "send"]
"""


def test_a_profile_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plant.toml"
    path.write_text(GOOD)
    loaded = profile(str(path))
    assert loaded == profile(path)
    assert loaded == FaultProfile(
        name="plant",
        max_hits=3,
        faults=(
            FaultRule(kind="stale_read", rate=0.25, tools=("get_*",), window=Window.LATE, max_hits=2),
            FaultRule(kind="rate_limited", rate=1.0, effects=(Effect.WRITE, Effect.SEND)),
        ),
    )
    assert SeededWeather(loaded, 0).profile == f"plant@{loaded.digest[7:19]}"
    assert SeededWeather(BUILT_IN["noisy"], 0).profile == "noisy"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'x'", ["no faults"]),
        ("name = 'noisy'\n[[faults]]\nkind = 'rate_limited'\nrate = 1", ["built in"]),
        ("name = 'x'\n[[faults]]\nkind = 'stale_reed'\nrate = 1", ["stale_reed", "did you mean 'stale_read'"]),
        ("name = 'x'\n[[faults]]\nkind = 'rate_limited'\nrate = 2", ["faults.0.rate"]),
        ("name = 'x'\n[[faults]]\nkind = 'rate_limited'", ["faults.0.rate"]),
        ("name = 'x'\n[[faults]]\nkind = 'rate_limited'\nrate = nan", ["faults.0.rate"]),
        ("name = 'x'\n[[faults]]\nkind = 'rate_limited'\nrate = 1\nwindow = 'noon'", ["faults.0.window"]),
        ("name = 'x'\n[[faults]]\nkind = 'rate_limited'\nrate = 1\nmax_hit = 1", ["unknown key"]),
        ("name = 'x'\n[[faults]]\nkind = 'stale_read'\nrate = 1\neffects = ['write']", ["effects among read"]),
        ("name = ", ["not valid TOML"]),
    ],
)
def test_a_wrong_file_gets_one_clear_error(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        profile(path)
    assert str(path) in caught.value.where
    for word in words:
        assert word in str(caught.value)


def test_a_missing_name_or_file_says_what_there_is() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'noisy'"):
        profile("nosy")
    with pytest.raises(NotFoundError, match=r"write a path: \./plant\.toml"):
        profile("plant.toml")
    with pytest.raises(ConfigError, match="not found"):
        profile("./nowhere.toml")
