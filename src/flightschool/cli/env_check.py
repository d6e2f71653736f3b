"""``env check``: what every environment must keep, and how true one from traces is to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.env_package import keep_examination
from flightschool.cli.references import open_environment, workspace_if_any

if TYPE_CHECKING:
    from flightschool.environments import EnvironmentRecord, Examination
    from flightschool.protocols import Environment
    from flightschool.records import Finding, Json
    from flightschool.store import Workspace
    from flightschool.traces import RecordedEpisode

__all__ = ["check"]

MOST_SHOWN = 20


def check(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, or a path."),
    num: int | None = typer.Option(None, "-n", "--num", min=1, help="Examine the first tasks only."),
    folds: int = typer.Option(8, "--folds", min=0, help="Parts of the held-out measurement; 0 leaves it out."),
) -> None:
    """Check equal fresh worlds, reads that change nothing, references that work; and truth to the traces.

    An environment from traces is held against them twice: does it answer its own recordings, and does what was built
    without an episode answer that episode. Ends with 1 when something was found that bars its rewards from being
    trusted.
    """
    from flightschool.environments import check_environment, examine, wind_tunnel
    from flightschool.records import Severity

    space = workspace_if_any()
    world = open_environment(environment, space)
    with output.progress("checking worlds and references"):
        findings = check_environment(world, max_tasks=num)
    record, episodes, state = _sources(space, environment)
    with output.progress("running the recordings again"):
        examination = examine(world, episodes, findings, state=state, num_folds=folds)
    whole = num is None and folds > 0 and episodes is not None
    if whole and record is not None and space is not None and record.digest == world.digest:
        with space:
            keep_examination(space, record, examination)
    statement = wind_tunnel(world, examination, record.inventory if record else ())
    barring = sum(finding.severity is Severity.BARRING for finding in findings)
    examined = len(world.tasks()) if num is None else min(num, len(world.tasks()))
    _tell(world, findings, examination)
    for kind in ("matched", "scaled", "ignored"):
        for line in getattr(statement, kind):
            output.say(f"{kind}: {line}")
    output.say(f"{examined} tasks examined, {len(findings)} findings, {barring} of them barring")
    told: dict[str, Any] = msgspec.to_builtins(examination)
    output.finish(
        {
            "env": world.name,
            "digest": world.digest,
            "num_examined": examined,
            "findings": findings,
            "num_barring": barring,
            **told,
            "wind_tunnel": statement,
        },
        fell_short=barring > 0,
    )


def _sources(
    space: Workspace | None, environment: str
) -> tuple[EnvironmentRecord | None, Sequence[RecordedEpisode] | None, dict[str, Json] | None]:
    """The record of a kept environment, the traces that it was built from (None: gone or changed), and its state."""
    import json

    from flightschool.environments import environment_names, load_record
    from flightschool.traces import load_traces

    if space is None:
        return None, None, None
    with space:
        if environment not in environment_names(space.store):
            return None, None, None
        record = load_record(space.store, environment)
        state = {table: json.loads(space.store.get_blob(blob)) for table, blob in record.state.items()} or None
        if not record.traces or not space.store.has("traces", record.traces):
            output.say("the traces that it was built from are not in the workspace: truth to them is not measured")
            return record, None, state
        traces = load_traces(space.store, record.traces)
        if traces.digest != record.traces_digest:
            output.say(f"traces {record.traces!r} changed since it was built: truth to them is not measured")
            return record, None, state
        return record, traces.episodes, state


def _tell(world: Environment, findings: Sequence[Finding], examination: Examination) -> None:
    rows = [(f.severity.value, f.probe, f.what, f.evidence) for f in findings[:MOST_SHOWN]]
    if rows:
        output.table("Findings", ("severity", "probe", "what", "evidence"), rows)
    measured = [
        ("reads reproduced", examination.reads_reproduced),
        ("writes reproduced", examination.writes_reproduced),
        ("reads of unseen episodes", examination.loo_reads),
        ("writes of unseen episodes", examination.loo_writes),
        ("reads that see what was written", examination.read_your_writes),
        ("doing nothing reaches the end state", examination.noop_score),
        ("random calls pass", examination.random_score),
        ("references pass", examination.reference_score),
        ("checks agree with recorded outcomes", examination.label_agreement),
    ]
    output.table("Measured", ("what", "share"), [(what, f"{v:.3f}") for what, v in measured if v is not None])
    if examination.coverage:
        rungs = sorted({*examination.coverage, *examination.loo_coverage})
        output.table(
            "Answered by",
            ("rung", "own recordings", "unseen episodes"),
            [(r, f"{examination.coverage.get(r, 0):.3f}", f"{examination.loo_coverage.get(r, 0):.3f}") for r in rungs],
        )
    output.table(
        "Traffic",
        ("stratum", "traffic", "#tasks", "#families", "#no reference yet"),
        [
            (name, f"{one.traffic:.1%}", one.num_tasks, one.num_families, one.num_waiting)
            for name, one in examination.strata.items()
        ],
    )
    passed = [task for task in examination.barred if task in {one.id for one in world.tasks()}]
    if passed:
        output.say(f"barred, a no-op passes them: {', '.join(passed[:10])}", style="yellow")
