from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from flightschool.errors import StoreError
from flightschool.records import EpisodeGroup, Task
from flightschool.training.folders import RunFolder, durable_folder
from flightschool.training.journal import (
    Admitted,
    Discarded,
    Ended,
    Entry,
    Finished,
    Journal,
    Opened,
    Scored,
    oldest_step,
    read_journal,
    recover,
)
from flightschool.training.messages import Manifest

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., object]
TASK = Task(id="t", family="f", stratum="s", instruction="x", initial_state="y")


def write(path: Path, entries: Iterable[Entry]) -> None:
    journal = Journal(path)
    for entry in entries:
        journal.append(entry)
    journal.close()


def admitted(ordinal: int, incarnation: int = 0, step: int = 0) -> Admitted:
    return Admitted(
        incarnation=incarnation, ordinal=ordinal, group=f"g{ordinal}", task=TASK, admitted_step=step, temperature=1.0
    )


def manifest(step: int, consumed: tuple[str, ...], lineage: tuple[tuple[int, int], ...]) -> Manifest:
    return Manifest(run="r", incarnation=0, step=step, lineage=lineage, consumed=consumed)


def test_a_torn_end_is_cut_off_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.bin"
    write(path, [Opened(incarnation=0, step=0), admitted(0)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:11])
    assert len(list(read_journal(path))) == 2
    write(path, [admitted(1)])
    assert [getattr(entry, "ordinal", None) for entry in read_journal(path)] == [None, 0, 1]


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.bin"
    write(path, [admitted(0), admitted(1)])
    data = bytearray(path.read_bytes())
    data[12] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="journal is broken"):
        list(read_journal(path))


@pytest.fixture
def finished(make_group: MakeGroup, make_spans: MakeSpans) -> Callable[..., Finished]:
    def make(ordinal: int, incarnation: int = 0, version: int = 0) -> Finished:
        group = make_group([1.0, 0.0], [make_spans(version=version)] * 2, name=f"g{ordinal}", admitted_step=version)
        return Finished(incarnation=incarnation, ordinal=ordinal, group=group)

    return make


def test_every_admission_is_consumed_offered_or_repeated(tmp_path: Path, finished: Callable[..., Finished]) -> None:
    path = tmp_path / "journal.bin"
    entries: list[Entry] = [Opened(incarnation=0, step=0), *(admitted(i) for i in range(5))]
    entries += [finished(0), finished(1, version=2), finished(2, version=4), finished(3, version=1)]
    write(path, entries)
    found = recover(path, manifest(3, ("g0",), ((0, 3),)), max_staleness=1)
    assert (found.incarnation, found.step, found.next_ordinal) == (1, 3, 5)
    assert [item.ordinal for item in found.offer] == [1]
    assert [item.ordinal for item in found.readmit] == [2, 3, 4]  # of a dead version, too old, unfinished
    assert found.num_dropped == 2


def test_versions_of_a_dead_incarnation_are_not_compared_by_number(
    tmp_path: Path, finished: Callable[..., Finished]
) -> None:
    """Incarnation 0 reached step 5 but only 2 is durable; incarnation 1 began at 2 and checkpointed 5."""
    path = tmp_path / "journal.bin"
    write(
        path,
        [
            Opened(incarnation=0, step=0),
            admitted(0),
            admitted(1),
            finished(0, version=5),
            Opened(incarnation=1, step=2),
            finished(1, incarnation=1, version=5),
        ],
    )
    found = recover(path, manifest(5, (), ((0, 2), (1, 5))), max_staleness=1)
    assert [item.ordinal for item in found.offer] == [1]
    assert [item.ordinal for item in found.readmit] == [0]


def test_weights_that_an_incarnation_began_with_are_durable(tmp_path: Path, finished: Callable[..., Finished]) -> None:
    path = tmp_path / "journal.bin"
    write(path, [admitted(0), Opened(incarnation=3, step=2), finished(0, incarnation=3, version=2)])
    found = recover(path, manifest(2, (), ((0, 2),)), max_staleness=1)
    assert [item.ordinal for item in found.offer] == [0]


def test_without_a_checkpoint_finished_groups_of_the_first_weights_still_train(
    tmp_path: Path, finished: Callable[..., Finished]
) -> None:
    path = tmp_path / "journal.bin"
    write(path, [Opened(incarnation=0, step=0), admitted(0), finished(0), admitted(1), finished(1, version=1)])
    found = recover(path, None, max_staleness=1)
    assert [item.ordinal for item in found.offer] == [0]
    assert [item.ordinal for item in found.readmit] == [1]


def test_what_a_teacher_said_of_a_group_that_still_trains_is_kept(
    tmp_path: Path, finished: Callable[..., Finished]
) -> None:
    path = tmp_path / "journal.bin"
    said = {"g0:0": {1: (-0.5, -9999.0)}}
    rows: list[Entry] = [Opened(incarnation=0, step=0)]
    for ordinal in range(3):
        rows += [admitted(ordinal), finished(ordinal)]
        if ordinal < 2:
            rows.append(Scored(incarnation=0, ordinal=ordinal, group=f"g{ordinal}", scores=said))
    write(path, rows)
    found = recover(path, manifest(0, ("g0",), ((0, 0),)), max_staleness=1)
    assert [item.ordinal for item in found.offer] == [1, 2]
    assert found.scores == {"g1": said}, "what was consumed needs it no more, and the last was not scored"


def test_ended_attempts_of_a_group_cut_short_are_kept_while_they_may_train(
    tmp_path: Path, make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    path = tmp_path / "journal.bin"
    versions = (3, 2, 4, 1)  # durable, old but allowed, dead, too old
    members = make_group([1.0, 0.0, 1.0, 0.0], [make_spans(version=v) for v in versions], name="g0").members
    write(
        path,
        [
            Opened(incarnation=0, step=0),
            admitted(0),
            admitted(1),
            *(Ended(incarnation=0, ordinal=0, attempt=member) for member in members),
        ],
    )
    found = recover(path, manifest(3, (), ((0, 3),)), max_staleness=1)
    assert [item.ordinal for item in found.readmit] == [0, 1]
    assert {ordinal: [a.id for a in kept] for ordinal, kept in found.kept.items()} == {0: ["g0:0", "g0:1"]}


def test_members_of_a_group_that_is_too_old_are_not_lost_with_it(
    tmp_path: Path, make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    path = tmp_path / "journal.bin"
    group = make_group([1.0, 0.0], [make_spans(version=3), make_spans(version=1)], name="g0")
    ended = [Ended(incarnation=0, ordinal=0, attempt=member) for member in group.members]
    write(
        path,
        [Opened(incarnation=0, step=0), admitted(0), *ended, Finished(incarnation=0, ordinal=0, group=group)],
    )
    found = recover(path, manifest(3, (), ((0, 3),)), max_staleness=1)
    assert [a.id for a in found.kept[0]] == ["g0:0"]
    assert (found.num_dropped, found.tally.lost_tokens) == (1, group.members[1].num_completion_tokens)


def test_what_was_sampled_before_is_known_to_a_new_incarnation(
    tmp_path: Path, make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    """Three tokens an attempt: every one of them is consumed, lost, or still to be decided, and none counts twice."""
    made = {
        name: make_group([1.0, 0.0], [make_spans(version=v)] * 2, name=name)
        for name, v in (("g0", 3), ("g1", 4), ("g2", 3))
    }
    half = make_group([1.0, 0.0], [make_spans(version=3), make_spans(version=4)], name="g3")
    write(
        tmp_path / "journal",
        [
            Opened(incarnation=0, step=0),
            *(admitted(ordinal) for ordinal in range(4)),
            *(Ended(incarnation=0, ordinal=0, attempt=member) for member in made["g0"].members),
            *(Finished(incarnation=0, ordinal=int(name[1]), group=group) for name, group in made.items()),
            *(Ended(incarnation=0, ordinal=3, attempt=member) for member in half.members),
            Discarded(incarnation=0, ordinal=2, num_tokens=5),
        ],
    )
    found = recover(tmp_path / "journal", manifest(3, ("g0",), ((0, 3),)), max_staleness=1)
    assert ([item.group.id for item in found.offer], [*found.kept]) == (["g2"], [3])
    assert found.tally.lost_tokens == 6 + 3 + 5  # of dead weights: a group and an attempt; and what was cut short
    assert found.tally.sampled_tokens == found.tally.lost_tokens + 6
    assert (found.tally.num_finished, found.tally.finished_tokens) == (4, 12)
    assert (found.tally.num_consumed, found.tally.consumed_tokens) == (2, 6)


@pytest.mark.parametrize("knows_lineage", [True, False])
def test_weights_that_a_damaged_checkpoint_took_along_stay_dead(
    tmp_path: Path, finished: Callable[..., Finished], knows_lineage: bool
) -> None:
    """Step 4 is reached twice: by incarnation 0 and, after its checkpoint was damaged, by incarnation 2 from 2."""

    def opened(incarnation: int, *lineage: tuple[int, int]) -> Opened:
        step = lineage[-1][1] if lineage else 0
        return Opened(incarnation=incarnation, step=step, lineage=lineage if knows_lineage else ())

    path = tmp_path / "journal.bin"
    of_dead_step_4: list[Entry] = [admitted(1, 1, 4), finished(1, 1, version=4)]
    of_step_2: list[Entry] = [admitted(0), finished(0, version=2)]
    write(path, [opened(0), *of_step_2, opened(1, (0, 4)), *of_dead_step_4])
    whole = recover(path, manifest(4, ("g0",), ((0, 4),)), max_staleness=2)
    assert [f.group.id for f in whole.offer] == ["g1"]
    older = recover(path, manifest(2, (), ((0, 2),)), max_staleness=2)
    assert [f.group.id for f in older.offer] == ["g0"]  # trained by what was lost: trains again
    assert [a.group for a in older.readmit] == ["g1"]
    write(path, [opened(2, (0, 2))])
    again = recover(path, manifest(4, ("g0",), ((0, 2), (2, 4))), max_staleness=2)
    assert [a.group for a in again.readmit] == ["g1"]
    assert not again.offer
    begun_anew = recover(path, None, max_staleness=2)  # all checkpoints were removed
    assert [a.group for a in begun_anew.readmit] == ["g0", "g1"]


def test_oldest_token_counts(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    spans = [make_spans(version=4), make_spans(version=2), make_spans(version=1)]
    assert oldest_step(make_group([1.0, 0.0, None], spans, admitted_step=0)) == 2  # infra failures do not train


def test_half_written_checkpoints_are_ignored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with durable_folder(folder.checkpoint(2)) as fresh:
        (fresh / "manifest.json").write_bytes(
            b'{"run":"r","incarnation":0,"step":2,"lineage":[[0,2]],"consumed":["g0"]}'
        )
    half = tmp_path / "checkpoints" / ".step-000004.99"
    half.mkdir()
    (half / "manifest.json").write_text("{}")
    with pytest.raises(KeyError), durable_folder(folder.checkpoint(6)):
        raise KeyError
    newest = folder.newest_checkpoint()
    assert newest is not None
    assert (newest[0].name, newest[1].consumed) == ("step-000002", ("g0",))
    folder.prune_checkpoints()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]
