from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flightschool.errors import TokenContractError
from flightschool.training.dispatcher import pause_s
from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.link import StationLostError
from flightschool.training.supervisor import supervise


def flying(*ends: Exception | str) -> Callable[[], str]:
    left = list(ends)

    def fly() -> str:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    return fly


LOST = StationLostError("the trainer process 7 died with exit code -9")


def test_lost_stations_are_restarted_with_pauses_that_double(tmp_path: Path) -> None:
    told: list[str] = []
    slept: list[float] = []
    incidents = Incidents(tmp_path / "incidents.jsonl", told.append)
    result = supervise(
        flying(LOST, LOST, LOST, "done"),
        step_reached=lambda: 4,
        max_restarts=3,
        pause=0.5,
        incidents=incidents,
        sleep=slept.append,
    )
    assert result == "done"
    assert slept == [0.5, 1.0, 2.0]
    assert [incident.kind for incident in read_incidents(tmp_path / "incidents.jsonl")] == ["restart"] * 3
    assert told[1].endswith("begun again from step 4 in 1 s (2 of 3)")


def test_progress_between_two_losses_starts_the_count_again(tmp_path: Path) -> None:
    steps = iter([0, 2, 4, 6, 8])
    slept: list[float] = []
    supervise(
        flying(LOST, LOST, LOST, LOST, "done"),
        step_reached=lambda: next(steps),
        max_restarts=1,
        pause=1.0,
        incidents=Incidents(tmp_path / "i"),
        sleep=slept.append,
    )
    assert slept == [1.0] * 4


def test_what_fails_without_progress_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(StationLostError, match="died"):
        supervise(
            flying(LOST, LOST, LOST),
            step_reached=lambda: 0,
            max_restarts=2,
            pause=0.0,
            incidents=Incidents(tmp_path / "i"),
        )
    with pytest.raises(TokenContractError):  # another start would meet it again
        supervise(
            flying(TokenContractError("broken"), "done"),
            step_reached=lambda: 0,
            max_restarts=2,
            pause=0.0,
            incidents=Incidents(tmp_path / "j"),
        )
    assert read_incidents(tmp_path / "j") == ()


def test_pauses_are_bounded() -> None:
    assert [pause_s(1.0, number) for number in (1, 2, 3, 20)] == [1.0, 2.0, 4.0, 60.0]


def test_a_torn_line_of_incidents_is_left_out(tmp_path: Path) -> None:
    Incidents(tmp_path / "i").add("retry", "x")
    with (tmp_path / "i").open("ab") as file:
        file.write(b'{"at": 1.0, "ki')
    assert len(read_incidents(tmp_path / "i")) == 1
