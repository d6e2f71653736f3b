"""``eval upkeep · exposure · changelog · equate · history``: looking after a suite that is in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.cli.verb import verb
from flightschool.errors import GateError

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun, SuiteDesign
    from flightschool.reports import HistoryScore
    from flightschool.traces import TraceSet

__all__ = ["register"]

MOST_SHOWN = 20


def register(evaluation: typer.Typer) -> None:
    """Add the verbs to the group ``eval``."""
    verb(evaluation, "upkeep", example="flightschool eval upkeep checkride --traces july")(upkeep)
    verb(evaluation, "exposure", example="flightschool eval exposure checkride")(exposure)
    verb(evaluation, "changelog", example="flightschool eval changelog checkride-2")(changelog)
    verb(evaluation, "equate", example="flightschool eval equate eval-0001 eval-0007")(equate)
    verb(evaluation, "history", example="flightschool eval history checkride-2 --out history.html")(history)


def upkeep(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    traces: str | None = typer.Option(None, "--traces", help="Newly imported traces, to see how traffic has drifted."),
) -> None:
    """Saturation, misfit and flaky tasks, exposure and drift of a suite, with proposals for its next version.

    Ends with 1 when something is proposed.
    """
    from flightschool.evaluation import load_runs
    from flightschool.evaluation import upkeep as look_after
    from flightschool.records import Suite
    from flightschool.traces import load_traces

    with workspace() as space:
        frozen = space.store.get("suite", suite, Suite)
        runs = load_runs(space.store)
        traffic = None
        if traces is not None:
            traffic = _traffic(load_traces(space.store, traces), [share.name for share in frozen.strata])
        found = look_after(frozen, runs, traffic)
    rows = [
        ("evaluations, policies", f"{found.num_runs}, {found.num_policies}"),
        ("tasks that all solved", f"{found.share_solved_by_all:.0%}"),
        ("tasks that none solved", f"{found.share_solved_by_none:.0%}"),
        ("misfit tasks", len(found.misfit)),
        ("flaky tasks", len(found.flaky)),
        ("drift of traffic", "-" if found.drift is None else f"{found.drift:.0%}"),
        ("anchors for the next version", len(found.anchors)),
        ("tasks to retire", len(found.retire)),
    ]
    output.table(f"Suite {suite}", ("what", "#state"), rows)
    for proposal in found.proposals:
        output.say(f"proposal: {proposal}")
    output.finish({**msgspec.to_builtins(found)}, fell_short=bool(found.proposals))


def exposure(suite: str = typer.Argument(..., metavar="S", help="A frozen suite.")) -> None:
    """How often each task of a suite was shown, and to which candidate.

    Comparisons that ended early count, retries too; judging again does not. The sealed part is told in looks.
    """
    from flightschool.evaluation import exposure as count
    from flightschool.evaluation import load_earlies, load_runs, num_looks
    from flightschool.records import Suite

    with workspace() as space:
        frozen = space.store.get("suite", suite, Suite)
        runs = list(load_runs(space.store))
        for early in load_earlies(space.store):
            runs += [early.before, early.after]
        looks = num_looks(space.store, f"{suite}-holdout")
    found = count(frozen, runs)
    candidates = sorted({name for one in found for name in one.candidates})
    rows = [(o.task, o.family, o.shown, len(o.candidates), _most(o.candidates)) for o in found[:MOST_SHOWN]]
    output.table(f"Suite {suite}", ("task", "family", "#times shown", "#candidates", "most often to"), rows)
    if len(found) > len(rows):
        output.say(f"… and {len(found) - len(rows)} more, each shown {found[-1].shown} times or more")
    output.say(f"{len(candidates)} candidates have met this suite; the sealed part was looked at {looks} times")
    output.finish({"suite": suite, "candidates": candidates, "items": found, "looks": looks})


def changelog(suite: str = typer.Argument(..., metavar="S", help="A frozen suite.")) -> None:
    """What each version of a suite changed, and why."""
    from flightschool.evaluation import changelog as read

    with workspace() as space:
        rows = read(space.store, suite)
    for row in rows:
        head = f"{row.suite}, version {row.version}, {row.frozen_at}: {row.num_tasks} tasks"
        output.say(f"{head}; {row.because}" if row.because else head)
        if row.follows:
            output.say(
                f"  after {row.follows}: {row.anchors} anchors, {len(row.added)} added, {len(row.retired)} retired, "
                f"{len(row.changed)} changed; scores across this border are not comparable"
            )
            for task, parts in list(row.changed.items())[:12]:
                output.say(f"  {task}: {', '.join(parts)}")
    output.finish({"suite": suite, "versions": rows})


def equate(
    baseline: str = typer.Argument(..., metavar="BASELINE", help="Evaluation on the older version."),
    candidate: str = typer.Argument(..., metavar="CANDIDATE", help="Evaluation on the newer version."),
) -> None:
    """Carry scores across the border between two versions of a suite, as far as their anchors bear it.

    Compares the two on the anchors alone, and moves the candidate's score to the older scale. Ends with 1 when the
    comparison on anchors is not reliable.
    """
    from flightschool.evaluation import equate as move
    from flightschool.evaluation import lineage_of, load_run, load_runs, on_anchors

    with workspace() as space:
        old, new = load_run(space.store, baseline), load_run(space.store, candidate)
        anchors = _anchors_between(lineage_of(space.store, new.suite), old.suite)
        others = load_runs(space.store)
    compared = on_anchors(old, new, anchors)
    peers = [run for run in others if run.suite_digest == old.suite_digest and run.noise_digest == old.noise_digest]
    (moved,) = move([new], peers, anchors)
    output.say(
        f"on {len(anchors)} anchors: {compared.diff:+.3f} ({compared.low:+.3f} to {compared.high:+.3f}), "
        f"{'reliable' if compared.reliable else 'NOT reliable: ' + '; '.join(compared.doubts)}"
    )
    output.say(
        f"{new.policy}: {moved.score:.3f} on {new.suite} is {moved.equated.value:.3f} "
        f"({moved.equated.low:.3f} to {moved.equated.high:.3f}) on the scale of {old.suite}"
    )
    told = {**msgspec.to_builtins(compared), "anchors": list(anchors), "equated": moved}
    output.finish(told, fell_short=not compared.reliable)


def history(
    suite: str = typer.Argument(..., metavar="S", help="The newest version of a suite."),
    out: Path | None = typer.Option(None, "--out", help="Write a page with a chart, one HTML file."),
    perturb: str = typer.Option("clean", "--perturb", help="Weather of the evaluations that are shown."),
) -> None:
    """All scores along the versions of a suite. No line is drawn across the border between two versions."""
    from flightschool.evaluation import lineage_of, load_runs
    from flightschool.reports import HistoryVersion, write_history

    with workspace() as space:
        designs = lineage_of(space.store, suite)
        runs = load_runs(space.store)
    versions = [
        HistoryVersion(
            suite=design.suite,
            because=design.because,
            anchors=len(design.anchors),
            scores=tuple(_scored(run) for run in _own(runs, design, perturb)),
        )
        for design in designs
    ]
    for version in versions:
        rows = [(s.label, s.policy, f"{s.value:.3f}", f"{s.low:.3f} to {s.high:.3f}") for s in version.scores]
        output.table(f"{version.suite}", ("evaluation", "policy", "#success", "#95 %"), rows)
    if len(versions) > 1:
        output.say("scores across the borders between versions are not comparable: see flightschool eval equate")
    if out is not None:
        write_history(suite, versions, out)
    output.finish({"suite": suite, "versions": versions, "out": None if out is None else str(out)})


# ------------------------------------------------------------------------------------------------ parts


def _traffic(traces: TraceSet, known: Sequence[str]) -> dict[str, float]:
    """Stratum → episodes, as recorded; where nothing is, derived, with the suite's strata under their names."""
    from flightschool.environments import traffic_of

    if any(one.hint.stratum for one in traces.episodes):
        strata = Counter(one.hint.stratum or "(none)" for one in traces.episodes)
        return {stratum: float(count) for stratum, count in strata.items()}
    return traffic_of(traces, known)


def _most(candidates: Mapping[str, int]) -> str:
    if not candidates:
        return "-"
    name = max(candidates, key=candidates.__getitem__)
    return f"{name} ({candidates[name]})"


def _anchors_between(designs: Sequence[SuiteDesign], old: str) -> tuple[str, ...]:
    """Tasks that stayed unchanged all the way from an older version to the newest."""
    names = [design.suite for design in designs]
    if old not in names[:-1]:
        raise GateError(
            f"{old!r} is no earlier version of {names[-1]!r}",
            where="eval equate",
            expected=f"one of {', '.join(names[:-1]) or 'none: it has no earlier version'}",
            mend="scores of suites that share nothing are not comparable: measure both policies on one",
        )
    kept = set(designs[-1].anchors)
    for design in designs[names.index(old) + 1 : -1]:
        kept &= set(design.anchors)
    return tuple(task for task in designs[-1].anchors if task in kept)


def _own(runs: Sequence[EvaluationRun], design: SuiteDesign, noise: str) -> list[EvaluationRun]:
    return [run for run in runs if run.suite_digest == design.suite_digest and run.noise == noise and run.graded]


def _scored(run: EvaluationRun) -> HistoryScore:
    from flightschool.evaluation import summarise
    from flightschool.reports import HistoryScore

    found = summarise(run).measurement("success/weighted")
    return HistoryScore(label=run.id, policy=run.policy, value=found.value, low=found.low, high=found.high)
