"""``eval upkeep``: looking after a suite that is in use."""

from __future__ import annotations

from collections import Counter

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.cli.verb import verb

__all__ = ["register"]


def register(evaluation: typer.Typer) -> None:
    """Add the verb to the group ``eval``."""
    verb(evaluation, "upkeep", example="flightschool eval upkeep checkride --traces july")(upkeep)


def upkeep(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    traces: str | None = typer.Option(None, "--traces", help="Newly imported traces, to see how traffic has drifted."),
) -> None:
    """Saturation, misfit and flaky tasks, exposure and drift of a suite, with proposals for its next version.

    Ends with 1 when something is proposed.
    """
    from flightschool.evaluation import load_run
    from flightschool.evaluation import upkeep as look_after
    from flightschool.records import Suite
    from flightschool.traces import load_traces

    with workspace() as space:
        frozen = space.store.get("suite", suite, Suite)
        runs = [load_run(space.store, name) for name in space.store.keys("evaluation")]
        traffic = None
        if traces is not None:
            strata = Counter(one.hint.stratum or "(none)" for one in load_traces(space.store, traces).episodes)
            traffic = {name: float(count) for name, count in strata.items()}
        found = look_after(frozen, runs, traffic)
    rows = [
        ("evaluations, policies", f"{found.num_runs}, {found.num_policies}"),
        ("tasks that all solved", f"{found.share_solved_by_all:.0%}"),
        ("tasks that none solved", f"{found.share_solved_by_none:.0%}"),
        ("misfit tasks", len(found.misfit)),
        ("flaky tasks", len(found.flaky)),
        ("drift of traffic", "-" if found.drift is None else f"{found.drift:.0%}"),
        ("anchors for the next version", len(found.anchors)),
    ]
    output.table(f"Suite {suite}", ("what", "#state"), rows)
    for proposal in found.proposals:
        output.say(f"proposal: {proposal}")
    output.finish({**msgspec.to_builtins(found)}, fell_short=bool(found.proposals))
