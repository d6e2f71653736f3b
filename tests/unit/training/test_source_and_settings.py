from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from flightschool.config import parse_settings
from flightschool.errors import ConfigError, GateError, InputError
from flightschool.records import EpisodeGroup, Split, Task
from flightschool.training import PoolSource, TrainingSettings
from flightschool.training.generation import is_noisy

TASKS = [Task(id=f"t{i}", family="f", stratum="s", instruction="x", initial_state="y") for i in range(4)]


def draw(source: PoolSource, count: int) -> list[str]:
    return [task.id for _ in range(count) if (task := source.next_task()) is not None]


def test_rounds_hold_every_task_in_a_seeded_order() -> None:
    first, again, other = (draw(PoolSource(TASKS, seed=seed), 12) for seed in (1, 1, 2))
    assert first == again != other
    assert all(sorted(first[i : i + 4]) == ["t0", "t1", "t2", "t3"] for i in (0, 4, 8))


def pool_of(**counts: int) -> list[Task]:
    return [
        Task(id=f"{family}{i}", family=family, stratum="s", instruction="x", initial_state="y")
        for family, count in counts.items()
        for i in range(count)
    ]


def test_families_of_equal_share_take_turns() -> None:
    for seed in range(20):
        drawn = [task_id[0] for task_id in draw(PoolSource(pool_of(a=3, b=3, c=3), seed=seed), 9)]
        assert all(sorted(drawn[i : i + 3]) == ["a", "b", "c"] for i in (0, 3, 6))


def test_a_round_cut_anywhere_holds_each_family_by_its_share() -> None:
    for seed in range(20):
        drawn = [task_id[0] for task_id in draw(PoolSource(pool_of(a=6, b=2, c=4), seed=seed), 12)]
        for cut in range(1, 13):
            counts = Counter(drawn[:cut])
            assert all(abs(counts[family] - cut * share / 12) < 2 for family, share in (("a", 6), ("b", 2), ("c", 4)))


def test_light_tasks_do_not_all_wait_for_the_same_round() -> None:
    tasks = pool_of(a=40, b=40)
    source = PoolSource(tasks, weights={task.id: 0.25 for task in tasks if task.family == "b"}, num_rounds=4)
    counts = Counter(task_id[0] for task_id in draw(source, 45))
    assert 4 <= counts["b"] <= 14  # ten of about fifty in the first round
    assert Counter(draw(source, 1000)).total() == 4 * 40 + 40 - 45


def test_weights_are_shares_of_rounds() -> None:
    source = PoolSource(TASKS, weights={"t0": 2.0, "t1": 0.5}, num_rounds=10)
    counts = Counter(draw(source, 1000))
    assert counts == {"t0": 20, "t1": 5, "t2": 10, "t3": 10}
    assert source.next_task() is None


def test_suites_are_refused() -> None:
    with pytest.raises(GateError, match="belongs to a suite"):
        PoolSource(TASKS, split={"t2": Split.SUITE})
    with pytest.raises(InputError):
        PoolSource([])


def test_consumed_groups_are_counted(make_group: Callable[..., EpisodeGroup]) -> None:
    source = PoolSource(TASKS)
    source.report(make_group([1.0, 0.0]))
    assert source.num_consumed == {"t": 1}


def test_settings_name_the_wrong_key_and_value() -> None:
    with pytest.raises(ConfigError) as unknown:
        parse_settings({"learning_rat": 1.0}, TrainingSettings, where="x.toml")
    assert "learning_rate" in unknown.value.mend
    for table in ({"group_size": 1}, {"device": "cuda:x"}, {"clip_low": 1.5}, {"max_staleness": 0}):
        with pytest.raises(ConfigError, match="wrong value"):
            parse_settings(table, TrainingSettings, where="x.toml")


def test_a_rule_over_several_keys_is_told_without_the_whole_table() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_settings({"max_new_tokens": 5000, "seed": 7}, TrainingSettings, where="x.toml")
    told = raised.value
    assert told.what == "wrong value: keys that do not go together"
    assert told.expected == "max_new_tokens below max_context (1024): a prompt needs room too"
    assert told.mend == "correct them; 1 problem in all"


def test_the_learning_rate_warms_up_linearly() -> None:
    from flightschool.training.trainer import warmed_up

    settings = TrainingSettings(learning_rate=4e-5, warmup_steps=4)
    assert [warmed_up(settings, step) for step in range(6)] == pytest.approx([1e-5, 2e-5, 3e-5, 4e-5, 4e-5, 4e-5])
    assert warmed_up(TrainingSettings(learning_rate=4e-5), 0) == 4e-5


def test_the_noisy_share_is_a_share_of_groups() -> None:
    share = sum(is_noisy(TrainingSettings(noisy_share=0.3), seed) for seed in range(2000)) / 2000
    assert share == pytest.approx(0.3, abs=0.04)
    assert not any(is_noisy(TrainingSettings(noisy_share=0.0), seed) for seed in range(50))


def test_the_package_imports_without_torch() -> None:
    code = "import sys, flightschool.training; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
