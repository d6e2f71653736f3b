"""What of production an environment matches, what it scales, and what it leaves out: the wind-tunnel statement.

A model in a wind tunnel is trusted for what was matched and for nothing else. The statement is made from the record,
not from hope.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.environments.examining import Examination, underlying
from flightschool.environments.inventory import InventoryEntry
from flightschool.protocols import Environment
from flightschool.records import Effect, Record

__all__ = ["WindTunnel", "wind_tunnel"]


class WindTunnel(Record, frozen=True, kw_only=True):
    """Statements in plain words."""

    matched: tuple[str, ...]
    scaled: tuple[str, ...]
    ignored: tuple[str, ...]


def wind_tunnel(environment: Environment, examination: Examination, inventory: Sequence[InventoryEntry]) -> WindTunnel:
    """The statement for an environment as examined."""
    matched = [
        _share("reads answered as recorded, in sample", examination.reads_reproduced),
        _share("writes answered as recorded, in sample", examination.writes_reproduced),
        _share("reads of unseen episodes answered as recorded", examination.loo_reads),
        _share("writes of unseen episodes answered as recorded", examination.loo_writes),
        f"traffic: {len(examination.strata)} strata in their recorded shares",
    ]
    measured = [one.spec.name for one in inventory if one.spec.latency.sigma or one.spec.latency.median_ms != 100.0]
    scaled = [
        f"latency: lognormal on a virtual clock, fitted to the recordings of {len(measured)} of {len(inventory)} tools",
        "users: what they said in the recordings, told as one brief or fact by fact",
    ]
    return WindTunnel(
        matched=tuple(line for line in matched if line),
        scaled=tuple(scaled),
        ignored=tuple(_ignored(environment, examination)),
    )


def _share(what: str, value: float | None) -> str:
    return "" if value is None else f"{what}: {value:.1%}"


def _ignored(environment: Environment, examination: Examination) -> list[str]:
    lines = [
        "other actors: nothing changes but by the agent's own calls",
        "load, rate limits, outages: see fault profiles",
    ]
    traced = underlying(environment)
    if traced is not None and (traced.content.coded or not traced.content.code):
        placed = {one.tool for one in traced.content.programs if one.puts or one.changes} | set(traced.content.coded)
        lost = [
            tool.name
            for tool in environment.tools()
            if tool.effect is not Effect.READ and tool.name not in placed and tool.name != "decline"
        ]
        if lost:
            lines.append(f"effects on the state that no recording shows: {', '.join(lost)}")
        lines.append("calls that were neither recorded nor can be inferred: a typed error")
    if examination.num_waiting:
        lines.append(f"{examination.num_waiting} recorded intents without a reference: in the traffic, not attempted")
    lines += [
        f"{one.tool}: recordings say {one.recorded or '(absent)'!r}, the state says {one.state or '(absent)'!r}"
        + (f" under {one.path}" if one.path else "")
        for one in examination.drift
    ]
    return lines
