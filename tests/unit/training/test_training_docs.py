"""``docs/training.md`` explains every setting with its default, every algorithm, and every figure of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.config import Settings
from flightschool.engines.scoring import TeacherSettings
from flightschool.engines.settings import EngineSettings
from flightschool.training import ALGORITHMS, StepProgress, TrainingSettings
from flightschool.training.algorithms import CORRECTIONS
from flightschool.training.messages import StepStats
from flightschool.verification.reward import RewardSettings

TEXT = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
TABLES: dict[str, type[Settings]] = {
    "Settings": TrainingSettings,
    "Engine": EngineSettings,
    "Reward": RewardSettings,
    "Teacher": TeacherSettings,
}
LEAST_WORDS = 3


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(1)


def first_column(text: str) -> set[str]:
    return {name for row in re.findall(r"^\|(.*?)\|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}


def explained(name: str) -> Iterator[tuple[str, str, str]]:
    """(option, default, meaning) of every row; a row of several options has as many defaults, in their order."""
    for line in re.findall(r"^\| `.*", section(name), re.MULTILINE):
        names, defaults, meaning = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        options = re.findall(r"`([^`]+)`", names)
        values = re.sub(r" *\(.*\)", "", defaults).replace("`", "")
        split = values.split(", ") if len(options) > 1 else [values]
        for option, value in zip(options, split, strict=True):
            yield option, value, meaning


def told(default: object) -> set[str]:
    """Words that a default may be told by."""
    match default:
        case None:
            return {"none"}
        case bool():
            return {str(default).lower()}
        case "":
            return {"empty"}
        case tuple():
            return {", ".join(map(str, default)) or "empty"}
        case _:
            return {str(default)}


@pytest.mark.parametrize("name", TABLES)
def test_every_option_and_no_other_is_explained_once(name: str) -> None:
    options = [option for option, _, _ in explained(name)]
    assert sorted(options) == sorted(TABLES[name].model_fields)


@pytest.mark.parametrize("name", TABLES)
def test_every_default_is_as_told_and_every_option_has_a_meaning(name: str) -> None:
    for option, text, meaning in explained(name):
        default = TABLES[name].model_fields[option].default
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert float(text) == default, option
        else:
            assert text in told(default), option
        assert len(meaning.split()) >= LEAST_WORDS, option


@pytest.mark.parametrize(
    ("weight", "options"),
    [
        ("latency_weight", ("latency_low_ms", "latency_high_ms")),
        ("thinking_weight", ("thinking_budget",)),
    ],
)
def test_a_weight_names_what_it_cannot_do_without(weight: str, options: tuple[str, ...]) -> None:
    (meaning,) = (meaning for option, _, meaning in explained("Settings") if option == weight)
    assert all(f"`{option}`" in meaning for option in options)
    assert set(options) <= set(RewardSettings.model_fields)


def test_every_figure_and_no_other_is_explained() -> None:
    figures = set(StepProgress.__struct_fields__) - {"stats"} | {f"stats.{n}" for n in StepStats.__struct_fields__}
    assert first_column(section("Figures")) == figures


def test_every_algorithm_and_correction_is_named() -> None:
    assert first_column(section("Algorithms")) - {"algorithm"} == set(ALGORITHMS)
    assert all(f"`{name}`" in section("Settings") for name in CORRECTIONS)
