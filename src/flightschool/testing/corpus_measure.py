"""How well the audit tells flawed tasks from sound ones, on a labelled corpus, with exact intervals.

``python -m flightschool.testing.corpus_measure tests/corpus/audit/unseen`` audits every task and prints the table as
Markdown; ``make audit-corpus`` runs it. Labels are read by this program only: the audit sees folders that are named by
number. Finished audits are kept, so a run that was stopped goes on; ``--most-s`` stops it after a slice of time.

A *miss* is a flawed task that is called sound, or of which nothing was shown (``unaudited``, unless that is the label).
A *false alarm* is a sound task that is called anything else. Whether the very verdict of the label was given is told
beside that, as is the class of what was found.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flightschool.audit.terminal import FolderAudit, Journal, audit_folders
from flightschool.audit.terminal.examining import REPEATS
from flightschool.audit.terminal.proposing import TIMEOUT_S, Readers, open_readers
from flightschool.environments.terminal import TerminalTask, UnreadableTask, read_folder
from flightschool.records import Record, Severity
from flightschool.statistics.exact import clopper_pearson
from flightschool.testing.corpus import CorpusTask, corpus_digest, read_corpus
from flightschool.testing.recorded_models import RecordedModel, RecordingModel

__all__ = ["CorpusScore", "Judged", "judge_corpus", "score_corpus", "tell_corpus"]

SYSTEM_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
SOUND, UNAUDITED = "sound", "unaudited"


class Judged(Record, frozen=True, kw_only=True):
    """One task of a corpus with its label and what the audit said."""

    id: str
    label: str
    rows: tuple[str, ...]
    verdict: str
    classes: tuple[str, ...]
    """Of the barring findings."""
    why: str
    """The first barring finding, or why nothing could be said."""
    num_plays: int
    wall_s: float

    @property
    def is_missed(self) -> bool:
        """A flaw of which nothing was told."""
        return self.label not in (SOUND, self.verdict) and self.verdict in (SOUND, UNAUDITED)

    @property
    def is_false(self) -> bool:
        """An accusation of a sound task."""
        return self.label == SOUND and self.verdict != SOUND


class CorpusScore(Record, frozen=True, kw_only=True):
    """Counts over a corpus; ``bounds`` are exact two-sided 95 % bounds of the share."""

    num_flawed: int
    num_missed: int
    num_sound: int
    num_false: int
    num_exact: int
    """Tasks that got the very verdict of their label."""
    recall: tuple[float, float]
    specificity: tuple[float, float]
    precision: tuple[float, float]
    exact: tuple[float, float]


def score_corpus(judged: Sequence[Judged]) -> CorpusScore:
    """Count. Bounds by Clopper and Pearson (Biometrika 26, 1934)."""
    flawed = [one for one in judged if one.label != SOUND]
    sound = [one for one in judged if one.label == SOUND]
    num_missed, num_false = sum(one.is_missed for one in flawed), sum(one.is_false for one in sound)
    num_told = len(flawed) - num_missed
    num_exact = sum(one.verdict == one.label for one in judged)
    return CorpusScore(
        num_flawed=len(flawed),
        num_missed=num_missed,
        num_sound=len(sound),
        num_false=num_false,
        num_exact=num_exact,
        recall=clopper_pearson(num_told, len(flawed)),
        specificity=clopper_pearson(len(sound) - num_false, len(sound)),
        precision=clopper_pearson(num_told, num_told + num_false),
        exact=clopper_pearson(num_exact, len(judged)),
    )


def judge_corpus(
    folder: Path,
    work: Path,
    *,
    most_s: float | None = None,
    only: frozenset[str] = frozenset(),
    readers: Readers | None = None,
) -> tuple[list[Judged], int]:
    """Audit the tasks of a corpus; those that were audited before are taken from the journal.

    Args:
        folder: the archives.
        work: folder for unpacked tasks, images and finished audits.
        most_s: no further task is begun after so many seconds.
        only: names of the tasks to judge; empty: all.
        readers: models that are asked too.

    Returns:
        What was judged, and how many tasks are left.

    Raises:
        InputError: the corpus cannot be read.
        InfrastructureError: no sandbox can be made here.
    """
    tasks = {task.id: task for task in read_corpus(folder) if _runs_here(task) and (not only or task.id in only)}
    began = time.monotonic()
    judged: list[Judged] = []

    def unpacked() -> Iterator[TerminalTask | UnreadableTask]:
        for task in tasks.values():
            if most_s is not None and time.monotonic() - began > most_s:
                return
            place = work / "tasks" / task.id
            if not place.is_dir():
                task.unpack(work / ".aside").rename(_parent(place))
            yield read_folder(place)

    def keep(audit: FolderAudit) -> None:
        judged.append(_judged(tasks[audit.id], audit))
        sys.stderr.write(f"{audit.id} {audit.verdict.value} {audit.wall_s:.1f} s\n")

    shutil.rmtree(work / ".aside", ignore_errors=True)
    mode = f"run {REPEATS} 0"
    journal = Journal(work / "audits.jsonl", mode)
    asked = None if readers is None else Journal(work / "audits.jsonl", f"{mode} {readers.mode}")
    audit_folders(
        unpacked(), images=work / "images", journal=journal, readers=readers, readers_journal=asked, on_audit=keep
    )
    return judged, len(tasks) - len(judged)


def _parent(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _runs_here(task: CorpusTask) -> bool:
    return all(shutil.which(name, path=SYSTEM_PROGRAMS) for name in task.programs)


def _judged(task: CorpusTask, audit: FolderAudit) -> Judged:
    barring = [one for one in audit.findings if one.severity is Severity.BARRING]
    return Judged(
        id=task.id,
        label=task.verdict,
        rows=task.rows,
        verdict=audit.verdict.value,
        classes=tuple(dict.fromkeys(one.flaw for one in barring)),
        why=barring[0].what if barring else audit.unaudited_because,
        num_plays=audit.num_episodes,
        wall_s=audit.wall_s,
    )


# ------------------------------------------------------------------------------------------------ telling


def tell_corpus(judged: Sequence[Judged], digest: str) -> str:
    """The result as Markdown: figures, verdicts by label, by class, misses and false alarms, time."""
    score = score_corpus(judged)
    told = score.num_flawed - score.num_missed
    kept = score.num_sound - score.num_false
    walls = sorted(one.wall_s for one in judged)
    most_of = int(0.9 * (len(walls) - 1))
    lines = [
        f"Corpus `{digest}`: {score.num_flawed} flawed and {score.num_sound} sound tasks.",
        "",
        "| figure | count | share | exact 95 % interval |",
        "|---|---|---|---|",
        _line("flawed tasks that were told (recall)", told, score.num_flawed, score.recall),
        _line("sound tasks that were left in peace (specificity)", kept, score.num_sound, score.specificity),
        _line("accusations that were right (precision)", told, told + score.num_false, score.precision),
        _line("the very verdict of the label", score.num_exact, len(judged), score.exact),
        "",
        *_by_label(judged),
        "",
        *_by_row(judged),
        "",
        "| task | label | verdict | classes found | what was told |",
        "|---|---|---|---|---|",
        *(_row(one) for one in judged if one.verdict != one.label),
        "",
        f"Time for one task: median {statistics.median(walls):.1f} s, 90 % below {walls[most_of]:.1f} s,"
        f" longest {walls[-1]:.1f} s; {sum(one.num_plays for one in judged)} plays and gradings.",
    ]
    return "\n".join(lines) + "\n"


def _line(what: str, count: int, total: int, bounds: tuple[float, float]) -> str:
    share = f"{100 * count / total:.1f} %" if total else "none"
    return f"| {what} | {count} of {total} | {share} | {100 * bounds[0]:.1f} to {100 * bounds[1]:.1f} % |"


def _by_label(judged: Sequence[Judged]) -> Iterator[str]:
    labels = list(dict.fromkeys(sorted(one.label for one in judged)))
    verdicts = list(dict.fromkeys([*labels, *sorted(one.verdict for one in judged)]))
    counts = Counter((one.label, one.verdict) for one in judged)
    yield "| label \\ verdict | " + " | ".join(verdicts) + " |"
    yield "|---" * (len(verdicts) + 1) + "|"
    for label in labels:
        yield f"| {label} | " + " | ".join(str(counts[label, one] or "·") for one in verdicts) + " |"


def _by_row(judged: Sequence[Judged]) -> Iterator[str]:
    """Each class of the taxonomy: its flawed tasks, and its sound ones (that look like it, or defend against it)."""
    yield "| row | flawed | told | the label's verdict | sound | left in peace | classes found |"
    yield "|---|---|---|---|---|---|---|"
    rows = sorted({row for one in judged for row in one.rows}, key=lambda row: (int(row.rstrip("ab")), row))
    for row in rows:
        flawed = [one for one in judged if row in one.rows and one.label != SOUND]
        sound = [one for one in judged if row in one.rows and one.label == SOUND]
        classes = dict.fromkeys(name for one in flawed for name in one.classes[:1])
        told = sum(not one.is_missed for one in flawed)
        exact = sum(one.verdict == one.label for one in flawed)
        kept = sum(not one.is_false for one in sound)
        yield f"| {row} | {len(flawed)} | {told} | {exact} | {len(sound)} | {kept} | {', '.join(classes)} |"


def _row(one: Judged) -> str:
    what = " ".join(one.why.split()).replace("|", "/")[:160]
    kind = "**missed**" if one.is_missed else "**false alarm**" if one.is_false else one.verdict
    verdict = f"{kind} ({one.verdict})" if "*" in kind else kind
    return f"| {one.id} | {one.label} (row {', '.join(one.rows)}) | {verdict} | {', '.join(one.classes)} | {what} |"


@contextmanager
def _readers(chosen: argparse.Namespace) -> Iterator[Readers | None]:
    """The models that were named, recorded where that was asked for, or what was recorded of some."""
    if chosen.replies is not None:
        recorded = RecordedModel(chosen.replies)
        with Readers(recorded, recorded, name=f"recorded {chosen.replies.name}") as readers:
            yield readers
        return
    through = {} if chosen.record is None else {"through": partial(RecordingModel, file=chosen.record)}
    with open_readers(
        chosen.proposer, chosen.checker, timeout_s=chosen.timeout_s, at_once=chosen.at_once, **through
    ) as readers:
        yield readers


def main() -> int:
    """The command; 0 when all is judged, 3 when tasks are left."""
    parser = argparse.ArgumentParser(prog="python -m flightschool.testing.corpus_measure", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of archives")
    parser.add_argument("--work", type=Path, default=Path("build/audit-corpus"), help="where finished audits are kept")
    parser.add_argument("--most-s", type=float, default=None, help="begin no further task after so many seconds")
    parser.add_argument("--only", default="", help="names of some tasks, with commas between: t001,t007")
    parser.add_argument("--proposer", default="", help="a model that proposes programs: openai:URL#MODEL")
    parser.add_argument("--checker", default="", help="a model that weighs what came of them")
    parser.add_argument("--record", type=Path, default=None, help="add what the models say to this file")
    parser.add_argument("--replies", type=Path, default=None, help="ask this file, which was recorded, and no model")
    parser.add_argument("--timeout-s", type=float, default=TIMEOUT_S, help="seconds of one request to a model")
    parser.add_argument("--at-once", type=int, default=8, help="requests to models at a time")
    chosen = parser.parse_args()
    chosen.work = chosen.work.resolve()  # a sandbox mounts absolute paths only
    chosen.work.mkdir(parents=True, exist_ok=True)
    only = frozenset(name for name in chosen.only.split(",") if name)
    with _readers(chosen) as readers:
        judged, num_left = judge_corpus(chosen.folder, chosen.work, most_s=chosen.most_s, only=only, readers=readers)
    if num_left:
        sys.stderr.write(f"{len(judged)} judged, {num_left} left: run it again to go on\n")
        return 3
    sys.stdout.write(tell_corpus(judged, corpus_digest(chosen.folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
