"""``bench evaluation``: the instrument itself, held against its targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.bench import EvaluationBench

__all__ = ["register"]


def register(bench: typer.Typer) -> None:
    """Add the verb to the group ``bench``."""
    verb(bench, "evaluation", example="flightschool bench evaluation --quick --json")(evaluation)


def evaluation(
    quick: bool = typer.Option(False, "--quick", help="Fewer simulations and samples; under eight minutes."),
    peer: bool = typer.Option(True, "--peer/--no-peer", help="Install Inspect apart and measure it in the same run."),
    keep: Path | None = typer.Option(
        None, "--keep", help="Folder that keeps the peer's environment; the user's cache by default."
    ),
) -> None:
    """Coverage of intervals, errors of the sequential test, and the cost of a sample beside Inspect.

    Targets: exact coverage .95 to .985, clustered at least .93, sequential error at most .05 and power at least .8 with
    1.3 times the fixed sample, 2 ms CPU and 3 kB a sample, 8 times less CPU and 10 times faster reading than Inspect,
    200 MB at 100,000 samples, a summary of 200,000 samples in a second.
    """
    from flightschool.bench import bench_evaluation

    measured = bench_evaluation(quick=quick, peer=peer, folder=keep, tell=output.say)
    _tell(measured)
    output.finish({**msgspec.structs.asdict(measured), "met": measured.met}, fell_short=not measured.met)


def _tell(measured: EvaluationBench) -> None:
    rows = [
        (t.name, f"{t.value:.4g}", f"{t.relation} {t.limit:g}", "met" if t.met else "MISSED") for t in measured.targets
    ]
    title = f"{measured.num_samples} samples, {measured.num_simulations} simulations a cell"
    output.table(title, ("figure", "#measured", "#target", ""), rows)
    if measured.ratio is None:
        output.say("the peer was not measured: its targets are open")
