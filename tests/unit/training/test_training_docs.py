"""``docs/training.md`` explains every setting with its default, every algorithm, and every figure of a step."""

from __future__ import annotations

import re
from pathlib import Path

from flightschool.training import ALGORITHMS, StepProgress, TrainingSettings
from flightschool.training.algorithms import CORRECTIONS
from flightschool.training.messages import StepStats

TEXT = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(1)


def first_column(text: str) -> set[str]:
    return {name for row in re.findall(r"^\|(.*?)\|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}


def test_every_setting_and_no_other_is_explained() -> None:
    assert first_column(section("Settings")) - {"option"} == set(TrainingSettings.model_fields)


def test_every_figure_and_no_other_is_explained() -> None:
    figures = set(StepProgress.__struct_fields__) - {"stats"} | {f"stats.{n}" for n in StepStats.__struct_fields__}
    assert first_column(section("Figures")) == figures


def test_every_algorithm_and_correction_is_named() -> None:
    assert first_column(section("Algorithms")) - {"algorithm"} == set(ALGORITHMS)
    assert all(f"`{name}`" in section("Settings") for name in CORRECTIONS)


def test_plain_defaults_are_as_told() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", section("Settings"), re.MULTILINE))
    told = {"false": False, "true": True}
    for name, text in rows.items():
        default = TrainingSettings.model_fields[name].default
        if isinstance(default, bool):
            assert told[text] is default, name
        elif isinstance(default, int | float):
            assert float(text) == default, name
        elif isinstance(default, str):
            assert text == default, name
