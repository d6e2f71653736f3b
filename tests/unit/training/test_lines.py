from __future__ import annotations

import json
from pathlib import Path

import pytest

from flightschool.errors import StoreError
from flightschool.records import GroupState
from flightschool.training.credits import CreditsFile, GroupRow, read_credits
from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.lines import LineFile, read_lines


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (b"", b""),
        (b'{"a', b""),
        (b'{"a":1}\n', b'{"a":1}\n'),
        (b'{"a":1}\n{"a":2', b'{"a":1}\n'),
        (b'{"a":1}\n{"a":"' + b"x" * 200_000, b'{"a":1}\n'),  # longer than what is looked at in one go
        (b"x" * 200_000, b""),
    ],
)
def test_what_a_crash_cut_short_is_not_glued_to_the_next_line(tmp_path: Path, left: bytes, kept: bytes) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(left)
    assert read_lines(path, json.loads) == [json.loads(line) for line in kept.splitlines()]  # before it is mended
    LineFile(path).append(b'{"a":3}')
    assert path.read_bytes() == kept + b'{"a":3}\n'


def test_a_damaged_line_in_the_middle_is_told_and_never_skipped_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":{"a":2}\n\xff\n{"a":3}\n')
    with pytest.raises(StoreError, match=r"a line of f\.jsonl cannot be read") as error:
        read_lines(path, json.loads)
    assert error.value.where == f"{path} line 2"
    assert "remove the line" in error.value.mend
    told: list[str] = []
    assert read_lines(path, json.loads, told.append) == [{"a": 1}, {"a": 3}]
    assert [line.split(" of ")[0] for line in told] == ["line 2", "line 3"]


def test_files_of_a_run_go_on_after_a_torn_line(tmp_path: Path) -> None:
    """One of each kind that is not tested where it lives."""
    row = GroupRow(incarnation=0, version=0, group="g", task="t", state=GroupState.COMPLETE, members=())
    files = tmp_path / "credits.jsonl", tmp_path / "incidents.jsonl"
    for path in files:
        path.write_bytes(b'{"incarnation":0,"ver')
    CreditsFile(files[0]).write(row)
    Incidents(files[1]).add("retry", "x")
    assert read_credits(files[0]) == (row,)
    assert [incident.kind for incident in read_incidents(files[1])] == ["retry"]
