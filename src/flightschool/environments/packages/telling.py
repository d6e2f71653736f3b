"""The report of a package: what answers its calls, how true it is to its recordings, and what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from flightschool.environments.realism import wind_tunnel
from flightschool.environments.registry import EnvironmentRecord
from flightschool.protocols import Environment
from flightschool.records import Json

__all__ = ["report_page", "report_table"]

_MOST_SHOWN = 200
_RUNGS = {
    "L0": "your own code",
    "L1": "inferred from recordings and state",
    "L2": "recorded after the same writes",
    "L3": "recorded but for arguments that never mattered",
    "L4": "not recorded: a typed error",
    "L5": "invented by a model; never worth a reward",
}


def report_table(record: EnvironmentRecord, environment: Environment) -> dict[str, Json]:
    """The report as data. Figures come from the examination; without one, from what was measured at the making."""
    examined = record.examination
    told: dict[str, Json] = {
        "schema": 1,
        "name": record.name,
        "digest": environment.digest,
        "kind": record.kind,
        "traces": record.traces,
        "num_tasks": len(environment.tasks()),
        "num_tools": len(environment.tools()),
        "strata": _strata(environment),
        "fidelity": msgspec.to_builtins(record.fidelity),
        "coverage": _coverage(record),
        "examination": None if examined is None else msgspec.to_builtins(examined),
        "wind_tunnel": None
        if examined is None
        else msgspec.to_builtins(wind_tunnel(environment, examined, record.inventory)),
        "inventory": msgspec.to_builtins(record.inventory),
        "left_out": msgspec.to_builtins(record.left_out),
    }
    return told


def _strata(environment: Environment) -> dict[str, Json]:
    tasks = Counter(task.stratum for task in environment.tasks())
    return {
        name: {"traffic": environment.strata.get(name, 0.0), "num_tasks": count}
        for name, count in sorted(tasks.items())
    }


def _coverage(record: EnvironmentRecord) -> dict[str, float]:
    counts = {rung: share.total for rung, share in record.fidelity.by_rung.items()}
    total = sum(counts.values())
    return {rung: count / total for rung, count in counts.items()} if total else {}


# ------------------------------------------------------------------------------------------------ for people


def report_page(told: Mapping[str, Any]) -> str:
    """The report as Markdown. What stood in traces is written inert."""
    lines = [
        f"# {_inert(told['name'])}",
        "",
        f"{told['num_tasks']} tasks, {told['num_tools']} tools, answered by {_KINDS[told['kind']]}.",
        f"Digest `{told['digest']}`.",
        *_fidelity(told["fidelity"]),
        *_coverage_lines(told),
        *_examined(told["examination"]),
        *_traffic(told),
        *_tools(told["inventory"]),
        *_wind_tunnel(told["wind_tunnel"]),
        *_left_out(told),
    ]
    return "\n".join(lines) + "\n"


def _inert(text: object) -> str:
    """A text that is shown and does nothing: no markup, no line of its own."""
    plain = " ".join(str(text).split())
    shown = "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+!|~&<>" else sign for sign in plain)
    return shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN].rstrip("\\") + " …"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_inert(cell) for cell in row)} |"


def _share(part: Mapping[str, int]) -> str:
    if not part["total"]:
        return "nothing to measure"
    return f"{part['hits']} of {part['total']} ({part['hits'] / part['total']:.1%})"


def _fidelity(fidelity: Mapping[str, Any]) -> Iterator[str]:
    if not fidelity["calls"]["total"]:
        return
    yield from ("", "## True to its recordings", "")
    yield f"Reads answered as recorded: {_share(fidelity['reads'])}; writes: {_share(fidelity['writes'])}."
    agreement = fidelity["agreement"]
    yield f"Checks accept {_share(agreement['successes'])} recorded successes and turn down"
    yield f"{_share(agreement['failures'])} recorded failures."
    if fidelity["mismatches"]:
        rows = [(one["tool"], one["path"], one["recorded"], one["answered"]) for one in fidelity["mismatches"]]
        yield from _table(("tool", "place", "recorded", "answered"), rows)


def _coverage_lines(told: Mapping[str, Any]) -> Iterator[str]:
    examined = told["examination"] or {}
    unseen = examined.get("loo_coverage") or {}
    rungs = sorted({*told["coverage"], *unseen})
    if not rungs:
        return
    shares = (told["coverage"], unseen)
    yield from ("", "## What answers")
    rows = [
        (rung, _RUNGS.get(rung, rung), *(f"{one[rung]:.3f}" if rung in one else "–" for one in shares))
        for rung in rungs
    ]
    yield from _table(("rung", "what it is", "share of its own recordings", "share of unseen episodes"), rows)


_KINDS = {
    "recordings": "what is inferred of them, else by recordings",
    "functions": "tool functions",
    "mixed": "tool functions; those without one by what is inferred of them, else by recordings",
    "environment": "code",
    "foreign": "another ecosystem",
}
_MEASURED = (
    ("reads_reproduced", "reads reproduced, in sample"),
    ("writes_reproduced", "writes reproduced, in sample"),
    ("loo_reads", "reads of unseen episodes"),
    ("loo_writes", "writes of unseen episodes"),
    ("read_your_writes", "reads that see what was written"),
    ("noop_score", "tasks whose end state is reached by doing nothing"),
    ("random_score", "tasks that random calls pass"),
    ("reference_score", "references that pass their own checks"),
    ("label_agreement", "recorded outcomes that the checks give again"),
)


def _examined(examined: Mapping[str, Any] | None) -> Iterator[str]:
    yield from ("", "## Examined")
    if examined is None:
        yield from ("", "Not yet: `flightschool env check`.")
        return
    rows: list[tuple[str, ...]] = [
        (what, "not measured" if examined[key] is None else f"{examined[key]:.3f}") for key, what in _MEASURED
    ]
    rows.append(("deterministic", "yes" if examined["deterministic"] else "no"))
    rows.append(("reads change nothing", "yes" if examined["idempotent_reads"] else "no"))
    yield from _table(("what", "figure"), rows)
    if examined["loo_reads"] is None and examined["loo_writes"] is None:
        yield from ("", "Truth to unseen episodes is measured by `flightschool env check`.")
    barred = examined["barred"]
    if barred:
        yield from (
            "",
            f"Barred from training ({len(barred)}): {', '.join(_inert(one) for one in barred[:_MOST_SHOWN])}.",
        )
    if examined["drift"]:
        rows = [(one["tool"], one["path"], one["recorded"], one["state"]) for one in examined["drift"]]
        yield from _table(("tool", "place", "recordings say", "the state says"), rows)


def _traffic(told: Mapping[str, Any]) -> Iterator[str]:
    examined = told["examination"] or {}
    strata = examined.get("strata") or told["strata"]
    yield from ("", "## Traffic")
    rows = [
        (name, f"{one['traffic']:.1%}", one["num_tasks"], one.get("num_families", "–"), one.get("num_waiting", "–"))
        for name, one in strata.items()
    ]
    yield from _table(("stratum", "traffic", "tasks", "families", "no reference yet"), rows)


def _tools(inventory: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", "## Tools")
    rows = [
        (one["spec"]["name"], one["spec"]["effect"], one["effect_reason"], one["num_calls"], one["num_errors"])
        for one in inventory
    ]
    yield from _table(("tool", "effect", "known how", "recorded calls", "errors"), rows)


def _wind_tunnel(statement: Mapping[str, Sequence[str]] | None) -> Iterator[str]:
    if statement is None:
        return
    yield from ("", "## Wind tunnel: what is matched, scaled and ignored relative to production", "")
    for kind in ("matched", "scaled", "ignored"):
        yield from (f"- {kind}: {_inert(line)}" for line in statement[kind])


def _left_out(told: Mapping[str, Any]) -> Iterator[str]:
    if told["left_out"]:
        yield from ("", "## Recorded tasks without a reference")
        yield from _table(("task", "why"), [(one["task"], one["reason"]) for one in told["left_out"]])
