from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console
from tests.unit.training.test_progress import STATS, meter

from flightschool.cli import output
from flightschool.cli.telling import LiveTell
from flightschool.cli.training_view import TrainingView, duration, spark
from flightschool.training.progress import StepProgress


def row(step: int, **fields: object) -> StepProgress:
    made = meter().step(step - 1, step, STATS, 1.0)
    return msgspec.structs.replace(made, **fields)


def drawn(view: TrainingView, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(view)
    return out.getvalue()


def test_courses_are_drawn_between_their_bounds() -> None:
    assert spark([0.0, 0.5, 1.0], 0.0, 1.0) == "▁▅█"
    assert spark([3.0, 3.0]) == "▁▁"
    assert spark([]) == ""
    assert spark([-9.0, 9.0], 0.0, 1.0) == "▁█"


def test_times_are_told_as_people_tell_them() -> None:
    assert [duration(s) for s in (-3, 41.6, 185, 8100)] == ["0 s", "42 s", "3 min 05", "2 h 15"]


def test_the_panel_holds_every_figure() -> None:
    view = TrainingView()
    assert drawn(view).strip() == ""
    for step in range(1, 5):
        view.step(
            row(
                step,
                success=step / 4,
                reward_total=0.1 * step,
                reward_process=-0.05,
                completion_tokens=42.0,
                tool_calls=2.5,
                staleness_mean=0.25,
                staleness_histogram={0: 3, 1: 1},
                num_groups=4,
                num_infra_failures=2,
                tokens_per_s=512.0,
                trainer_idle=0.25,
                eta_s=100.0,
            )
        )
    view.note("the trainer process 7 died with exit code -9; begun again")
    text = drawn(view)
    for words in (
        "step 4 of 9",
        "about 1 min 40 left",
        "pass rate",
        "100%",
        "▃▅▆█",
        "process -0.05",
        "2 lost to infrastructure",
        "42 tok",
        "2.5 tool calls",
        "entropy",
        "age 0: 75%, age 1: 25%",
        "512 tok/s",
        "75%",
        "ESS 100%",
        "died with exit code -9",
    ):
        assert words in text, words
    assert max(len(line) for line in drawn(view, 80).splitlines()) <= 80


def test_figures_bear_their_units() -> None:
    view = TrainingView()
    view.step(row(1, staleness_mean=0.25))
    text = drawn(view)
    assert "0.25 steps" in text
    assert re.search(r"entropy .* nats a token", text)
    assert re.search(r"k3 \S+ nats", text)


@pytest.mark.parametrize("first", [1, 5])
def test_lines_of_a_log_have_one_heading_wherever_a_run_goes_on(first: int) -> None:
    shown = io.StringIO()
    with output.session(json_mode=False) as now:
        now.consoles.append(Console(file=shown, markup=False, emoji=False, width=120))
        with LiveTell() as tell:
            tell.step(row(first))
            tell.step(row(first + 1))
    assert shown.getvalue().count("success  reward  tokens") == 1


def test_every_term_that_a_reward_has_is_told() -> None:
    view = TrainingView()
    view.step(row(1, reward_outcome=0.5, reward_gate=1.0))
    assert "thinking" not in drawn(view)
    view.step(row(2, reward_outcome=0.5, reward_gate=1.0, reward_thinking=0.25, reward_turns=-0.125))
    told = " ".join(drawn(view, 200).split())
    assert "outcome 0.50, process +0.00, latency +0.00, thinking +0.25, turns -0.12, gate 1.00" in told


def test_the_teacher_has_a_line_where_there_is_one() -> None:
    view = TrainingView()
    view.step(row(1))
    assert "teacher" not in drawn(view)
    view.step(row(2, num_teacher_tokens=9, teacher_kl=0.4567, teacher_clip_share=0.125))
    assert "0.457" in drawn(view)
    assert "12.5% of tokens at a bound" in drawn(view)
