"""``bench openenv``: steps a CPU second over the OpenEnv protocol, beside OpenEnv's own server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.bench import OpenenvBench

__all__ = ["register"]


def register(bench: typer.Typer) -> None:
    """Add the verb to the group ``bench``."""
    verb(bench, "openenv", example="flightschool bench openenv --quick --json")(openenv)


def openenv(
    quick: bool = typer.Option(False, "--quick", help="Fewer steps and rounds."),
    peer: bool = typer.Option(True, "--peer/--no-peer", help="Install OpenEnv apart and measure it in the same run."),
    keep: Path | None = typer.Option(None, "--keep", help="Folder that keeps the peer's environment."),
) -> None:
    """Steps of an echo environment a CPU second of the server, and latencies, with one plain client for all servers.

    reference_steps_per_cpu_s: OpenEnv's server with a FastMCP tool, as its echo environment has one. plain_…: the
    template of openenv init, which has no tool. threaded_…: our server with the world run as foreign code is.

    Target: ratio at least 10.
    """
    from flightschool.bench import bench_openenv

    measured = bench_openenv(quick=quick, peer=peer, folder=keep, tell=output.say)
    _tell(measured)
    output.finish({**msgspec.structs.asdict(measured), "met": measured.met}, fell_short=not measured.met)


def _tell(measured: OpenenvBench) -> None:
    rows = [
        (what, "not measured" if value is None else f"{value:,.1f}")
        for what, value in (
            ("steps a CPU second", measured.steps_per_cpu_s),
            ("the same, world in a thread", measured.threaded_steps_per_cpu_s),
            ("OpenEnv with a FastMCP tool", measured.reference_steps_per_cpu_s),
            ("OpenEnv's template, no tool", measured.plain_steps_per_cpu_s),
            ("ratio to OpenEnv with a tool", measured.ratio),
            ("ratio to the template", measured.plain_ratio),
            (f"steps a second, 32 sessions, {measured.cores} processes", measured.steps_per_s_32_sessions),
            ("steps a second, 32 sessions, one process", measured.steps_per_s_32_sessions_one_process),
            ("a step of one session, median, ms", measured.p50_ms),
            ("a step of one session, 99 %, ms", measured.p99_ms),
        )
    ]
    output.table(f"{measured.num_steps} steps, {measured.num_rounds} rounds", ("what", "#measured"), rows)
    if measured.ratio is None:
        output.say("the peer was not measured: its target is open")
