"""kill -9 of a run's stations at random moments, until it ends by itself; then its export is checked.

Whole runs on the desk with the small model that ships: engine and coordinator in one process, the trainer in another.
Either is killed after a random, seeded time since its start or since the last kill; a run that was killed is gone on
with, a trainer is restarted by its run. A run that ends before all kills are made is checked and followed by another
one, so the number of kills is what was asked for however fast the machine is.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from flightschool.errors import InfrastructureError
from flightschool.records import Record

__all__ = ["Kills", "fly", "fly_with_kills"]

MAX_STALENESS = 1
NUM_STEPS = 24
LONGEST_S = 12.0
"""Longest time between kills: about twice what a start takes on two cores."""
_TRAINER = "flightschool.training.trainer_process"
_SHOWN = 20


class Kills(Record, frozen=True, kw_only=True):
    """All runs together."""

    num_kills: int
    num_run_kills: int
    """Of the process of engine and coordinator; the rest were of trainers."""
    num_runs: int
    """Runs that it took; each ended by itself and was checked."""
    num_faults: int
    """All that follow, attempts that were lost included."""
    lost: int
    """Places in the order of tasks that were admitted and not consumed."""
    doubled: int
    """Places or sampled texts that trained twice."""
    over_bound: int
    """Spans with a trained token that was too old."""
    malformed: int
    """Contradictions in the export."""
    attempts_lost: int
    """Attempts that had ended and could have trained, and were made again."""
    attempts_reused: int
    """Attempts that a later start of the run went on with."""
    num_groups_trained: int
    num_groups_consumed: int
    """With those that had no gradient."""
    faults: tuple[str, ...] = ()
    """The first of them, in words."""


def fly(folder: Path) -> Record:
    """The run that is killed, or what is left of it, to its end."""
    from flightschool.engines.catalogue import tiny_folder
    from flightschool.environments import load_environment
    from flightschool.rollouts import EpisodeRunner
    from flightschool.training import PoolSource, TrainingSettings, resume, train
    from flightschool.training.folders import RunFolder
    from flightschool.verification import OutcomeReward

    environment = load_environment("desk")
    source = PoolSource([task for task in environment.tasks() if task.stratum == "two_step"], seed=0)
    runner = EpisodeRunner(environment, OutcomeReward(), run="bench")
    if RunFolder(folder).start.exists():
        return resume(folder, source=source, runner=runner)
    settings = TrainingSettings(
        num_steps=NUM_STEPS,
        learning_rate=3e-4,
        group_size=4,
        groups_per_step=2,
        count_zero_advantage=True,
        max_staleness=MAX_STALENESS,
        max_inflight_groups=4,
        temperature=0.7,
        max_flat_groups=1_000_000,
        checkpoint_every=2,
        max_restarts=1_000_000,
        restart_pause_s=0.0,
        trackers=(),
    )
    return train(
        settings,
        model=tiny_folder(),
        run_dir=folder,
        source=source,
        runner=runner,
        unaudited="a benchmark of accounting: no score of this run is a result",
    )


class _Killer:
    """Holds the remaining kills."""

    def __init__(self, num_kills: int, seed: int, longest_s: float) -> None:
        self.left = num_kills
        self.killed: Counter[str] = Counter()
        self._chance, self._longest_s = random.Random(seed), longest_s

    def fly(self, folder: Path) -> None:
        """One run, started again as often as it is killed.

        Raises:
            InfrastructureError: it ended by itself and not well.
        """
        log = folder.parent / f"{folder.name}.log"
        command = [sys.executable, "-m", "flightschool.bench.training.processes", "killed", str(folder)]
        while True:
            with log.open("ab") as stream:
                process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stream)
            try:
                code = self._until_it_ends(process)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if code == 0:
                return
            if code != -signal.SIGKILL:
                lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise InfrastructureError(
                    f"a run that was killed before ended with {code}: {lines[-1] if lines else 'it said nothing'}",
                    where=str(folder),
                    expected="a run that goes on from its folder, whenever it was killed",
                    mend="see what it said",
                )

    def _until_it_ends(self, process: psutil.Popen) -> int:
        while self.left:
            try:
                return int(process.wait(self._chance.uniform(0.0, self._longest_s)))
            except psutil.TimeoutExpired:
                self._kill(process)
        return int(process.wait())

    def _kill(self, process: psutil.Popen) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            trainers = [child for child in process.children() if _TRAINER in child.cmdline()]
            victim = trainers[0] if trainers and self._chance.random() < 0.5 else process
            os.kill(victim.pid, signal.SIGKILL)
            self.killed["trainer" if trainers and victim is trainers[0] else "run"] += 1
            self.left -= 1


def fly_with_kills(
    num_kills: int,
    scratch: Path,
    *,
    seed: int = 0,
    longest_s: float = LONGEST_S,
    tell: Callable[[str], None] = lambda _: None,
) -> Kills:
    """Runs, killed ``num_kills`` times in all, and what the check of their exports found.

    Args:
        num_kills: in all.
        scratch: empty folder for the runs.
        seed: of victims and moments.
        longest_s: longest time between two kills.
        tell: is called with a line before each run.

    Raises:
        InfrastructureError: a run could not be gone on with.
    """
    killer, found = _Killer(num_kills, seed, longest_s), Counter[str]()
    words: list[str] = []
    while killer.left:
        found["runs"] += 1
        tell(f"run {found['runs']} with kills: {killer.left} of {num_kills} to go")
        folder = scratch / f"run-{found['runs']}"
        killer.fly(folder)
        words += _check(folder, found)
    return Kills(
        num_kills=killer.killed.total(),
        num_run_kills=killer.killed["run"],
        num_runs=found["runs"],
        num_faults=len(words),
        lost=found["lost"],
        doubled=found["doubled"],
        over_bound=found["too_old"],
        malformed=found["malformed"],
        attempts_lost=found["attempts_lost"],
        attempts_reused=found["attempts_reused"],
        num_groups_trained=found["trained"],
        num_groups_consumed=found["consumed"],
        faults=tuple(words[:_SHOWN]),
    )


def _check(folder: Path, found: Counter[str]) -> list[str]:
    """Export a run and count what is wrong with it; the faults in words."""
    from flightschool.training.checking import CONSUMED, attempts_over_kills, faults, read_rows
    from flightschool.training.exporting import export_run
    from flightschool.training.model_export import export_model

    exported = folder.parent / f"{folder.name}-exported"
    states = export_run(folder, exported).states
    export_model(folder, folder.parent / f"{folder.name}-model")
    num_places = 1 + max(int(row["ordinal"]) for row in read_rows(exported / "groups.jsonl"))
    wrong = faults(exported, max_staleness=MAX_STALENESS, num_tasks=num_places)
    again, num_reused = attempts_over_kills(folder, MAX_STALENESS)
    found.update(fault.kind for fault in wrong)
    found.update(
        trained=states.get("trained", 0),
        consumed=sum(states.get(state, 0) for state in CONSUMED),
        attempts_lost=len(again),
        attempts_reused=num_reused,
    )
    return [f"{folder.name}: {what}" for what in [*(f.what for f in wrong), *(f"{a}: made again" for a in again)]]
