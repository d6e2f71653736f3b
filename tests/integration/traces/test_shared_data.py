"""Real recordings: 200 airline episodes and the demonstrations of SWE-agent, through every station of this room.

The data are not part of the repository: FLIGHTSCHOOL_SHARED_DATA names the folder that holds them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import needs

from flightschool.traces import EXPORT_FORMATS, Redactor, TraceSet, export, import_traces, summarise

AIRLINE = needs.SHARED_DATA / "tau_bench_airline" / "trajectories.json"
DEMONSTRATIONS = needs.SHARED_DATA / "swe_agent_demonstrations"

pytestmark = pytest.mark.integration
airline = needs.shared_data("tau_bench_airline/trajectories.json")
demonstrations = needs.shared_data("swe_agent_demonstrations")


@pytest.fixture(scope="module")
def flights() -> TraceSet:
    return import_traces(AIRLINE)


def same_tool_reads_in_a_row(raw: list[dict[str, Any]]) -> int:
    """Counted on the raw file: a call right after the answer to a call of the same tool, reads only."""
    reads = ("get_", "search_", "list_", "think", "calculate")
    found = 0
    for episode in raw:
        before = ""
        for message in episode["traj"]:
            calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
            if calls:
                found += calls[0] == before and calls[0].startswith(reads)
                before = calls[0]
            elif message["role"] == "user":
                before = ""
    return found


@airline
class TestAirline:
    def test_what_the_summary_says(self, flights: TraceSet) -> None:
        told = summarise(flights)
        assert (told.num_episodes, told.num_calls, told.num_tasks, len(told.tools)) == (200, 1164, 50, 14)
        assert told.mergeable_rounds == same_tool_reads_in_a_row(json.loads(AIRLINE.read_text()))
        assert sum(cluster.num_episodes for cluster in told.intents) == 200
        assert sum(cluster.share for cluster in told.traffic) == pytest.approx(1.0)
        assert all(tool.arguments["type"] == "object" for tool in told.tools)

    @pytest.mark.parametrize("format_name", EXPORT_FORMATS)
    def test_every_format_brings_them_back(self, flights: TraceSet, format_name: str, tmp_path: Path) -> None:
        report = export(flights.episodes, tmp_path / "x.eval", format_name)
        assert report.losses == {}
        back = import_traces(tmp_path / "x.eval", format_name).episodes
        assert [msgspec.structs.replace(e, source="") for e in back] == [
            msgspec.structs.replace(e, source="") for e in flights.episodes
        ]

    def test_no_id_of_a_tool_is_taken_for_a_card_or_a_phone(self, flights: TraceSet) -> None:
        redactor = Redactor(b"k" * 32)
        redacted = list(redactor.episodes(flights.episodes))
        report = redactor.report()
        assert set(report.num_distinct) <= {"email"}
        again = Redactor(b"k" * 32)
        assert list(again.episodes(redacted)) == redacted
        assert again.report().num_replaced == {}
        ids = [(c.name, c.arguments.get("reservation_id")) for e in flights.episodes for c in e.calls]
        assert ids == [(c.name, c.arguments.get("reservation_id")) for e in redacted for c in e.calls]


@demonstrations
def test_demonstrations_keep_their_commands_and_durations() -> None:
    traces = import_traces(DEMONSTRATIONS)
    assert traces.format == "swe-agent"
    assert len(traces.episodes) == 10
    assert all(episode.calls for episode in traces.episodes)
    names = {call.name for episode in traces.episodes for call in episode.calls}
    assert {"command", "create"} <= names
    timed = [c for e in traces.episodes for c in e.calls if c.start_ms is not None]
    assert timed
    assert all(c.end_ms is not None and c.start_ms is not None and c.end_ms >= c.start_ms for c in timed)
