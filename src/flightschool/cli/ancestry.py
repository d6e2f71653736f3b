"""What a policy was trained on, from the workspace's own runs: tasks, demonstrations, and the model it began with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.errors import FlightschoolError

if TYPE_CHECKING:
    from flightschool.evaluation import Ancestry
    from flightschool.lineage import Text
    from flightschool.store import Workspace

__all__ = ["ancestry", "every_run"]

_UNTRAINED = ("oracle", "noop", "random", "constant", "script")
_MOST_GENERATIONS = 32


def ancestry(policy: str, space: Workspace) -> Ancestry:
    """The training texts behind a policy of the command line's grammar.

    A model folder of one of this workspace's runs is followed to its run; of any other model or endpoint nothing is
    known, and the statement says so.
    """
    from flightschool.evaluation import Ancestry

    kind, _, rest = policy.partition(":")
    if kind in _UNTRAINED:
        return Ancestry(statement="not trained")
    run = rest.partition("@")[0] if kind == "run" else _run_of(Path(rest), space) if kind == "model" else None
    if run is None:
        return Ancestry(statement=f"training of {policy} is not known to this workspace")
    texts: list[Text] = []
    met: list[str] = []
    begun_with = ""
    while run is not None and run not in met and len(met) < _MOST_GENERATIONS:
        met.append(run)
        begun_with = _collect(run, space, texts)
        run = _run_of(Path(begun_with), space) if begun_with else None
    statement = "trained in " + ", ".join(met)
    if begun_with and run is None:
        statement += f", begun with {Path(begun_with).name}, whose training is not known"
    return Ancestry(statement=statement, texts=tuple(dict.fromkeys(texts)))


def every_run(space: Workspace) -> Ancestry:
    """All that this workspace has trained on."""
    from flightschool.evaluation import Ancestry

    folder = space.data / "runs"
    texts: list[Text] = []
    runs = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    for run in runs:
        _collect(run, space, texts)
    return Ancestry(statement=f"{len(runs)} runs of this workspace", texts=tuple(dict.fromkeys(texts)))


def _run_of(model: Path, space: Workspace) -> str | None:
    """The run in whose folder a model lies."""
    runs = (space.data / "runs").resolve()
    place = model.resolve()
    return place.relative_to(runs).parts[0] if place != runs and place.is_relative_to(runs) else None


def _collect(run: str, space: Workspace, texts: list[Text]) -> str:
    """Add what one run trained on; returns the model it began with, empty when unknown."""
    from flightschool.evaluation import task_texts
    from flightschool.lineage import Origin, Text
    from flightschool.records import Attempt
    from flightschool.training import read_run
    from flightschool.training.folders import RunFolder
    from flightschool.training.journal import Admitted, read_journal

    folder = RunFolder(space.run_dir(run))
    if folder.journal.is_file():
        tasks = [entry.task for entry in read_journal(folder.journal) if isinstance(entry, Admitted)]
        texts.extend(task_texts(tasks))
    for key in space.store.keys("attempt", f"{run}:"):  # demonstrations that were imitated
        attempt = space.store.get("attempt", key, Attempt)
        asked = next((m.content for m in reversed(attempt.messages) if m.role == "user"), "")
        texts.append(Text(id=attempt.id, origin=Origin.TRACE, text=asked))
    try:
        return read_run(space.run_dir(run)).model
    except FlightschoolError:  # an imitation: its model lies beside the run that follows
        return ""
