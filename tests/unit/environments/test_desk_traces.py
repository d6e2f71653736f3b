"""The shipped traces are what the recipe writes, byte for byte, and look like the desk's traffic."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import flightschool.environments.desk as desk_package
from flightschool.environments.desk import build_environment
from flightschool.traces import import_traces

TRACES = Path(desk_package.__file__).parent / "traces"
RECIPE = Path(__file__).parents[3] / "recipes" / "record_desk_traces.py"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_desk_traces", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_recording_again_gives_the_shipped_bytes(recipe: ModuleType, tmp_path: Path) -> None:
    recipe.write(recipe.record(0, 24), tmp_path)
    for name, num_lines in (("desk_chat.jsonl", 24), ("desk_otlp.jsonl", 4)):
        again = (tmp_path / name).read_bytes().splitlines()
        assert again == (TRACES / name).read_bytes().splitlines()[:num_lines]


def test_both_files_import_without_issues_and_are_small() -> None:
    chat, otlp = import_traces(TRACES / "desk_chat.jsonl"), import_traces(TRACES / "desk_otlp.jsonl")
    assert len(chat.episodes) == 480
    assert len(otlp.episodes) == 80
    assert not [issue for episode in (*chat.episodes, *otlp.episodes) for issue in episode.issues]
    assert sum(path.stat().st_size for path in TRACES.iterdir()) < 2_000_000


def test_episodes_follow_the_traffic_and_are_imperfect() -> None:
    desk = build_environment()
    episodes = import_traces(TRACES / "desk_chat.jsonl").episodes
    shares = Counter(episode.hint.stratum for episode in episodes)
    assert {name: count / len(episodes) for name, count in shares.items()} == pytest.approx(dict(desk.strata))
    assert 0.4 < sum(bool(episode.success) for episode in episodes) / len(episodes) < 0.8
    assert all(desk.task(episode.hint.id).instruction == episode.instruction for episode in episodes)
    assert {str(episode.metadata["operator"]) for episode in episodes} >= {"careful", "hasty", "bold"}
