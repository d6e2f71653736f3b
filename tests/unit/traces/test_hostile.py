"""Every dialect, broken in every way that applies to it: one error that names the place, or a warning that is counted.

Nothing else may happen: no other exception, no episode that looks whole and is not; ``strict`` refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flightschool.cli import main
from flightschool.errors import TraceError
from flightschool.traces import IMPORT_FORMATS, TraceSet, import_traces
from flightschool.traces.samples import sample_trace

SUFFIX = {"swe-agent": ".traj"}
TIMED = ("anthropic-session", "codex", "inspect", "langfuse", "langsmith", "openinference", "otlp")
CYCLES = {
    "anthropic-session": [('"uuid": "1", "parentUuid": null', '"uuid": "1", "parentUuid": "4"')],
    "langfuse": [
        ('"id": "t1",', '"id": "t1", "parentObservationId": "g2",'),
        ('"id": "g2",', '"id": "g2", "parentObservationId": "t1",'),
    ],
    "langsmith": [
        ('"find_order", "trace_id": "R", "parent_run_id": "R"', '"find_order", "trace_id": "R", "parent_run_id": "a"'),
        ('"id": "a", "run_type": "llm", "name": "m", "trace_id": "R", "parent_run_id": "R"',
         '"id": "a", "run_type": "llm", "name": "m", "trace_id": "R", "parent_run_id": "b"'),
    ],
    "openinference": [
        ('"span_id": "0x2"}, "parent_id": "0x0"', '"span_id": "0x2"}, "parent_id": "0x1"'),
        ('"span_id": "0x1"}, "parent_id": "0x0"', '"span_id": "0x1"}, "parent_id": "0x2"'),
    ],
    "otlp": [('"spanId":"2b794a1854b65da3"', '"parentSpanId":"8817a8fc54a85212","spanId":"2b794a1854b65da3"')],
}  # fmt: skip
ORPHANS = {
    "anthropic-messages": [('"type": "tool_use", "id": "tu1"', '"type": "tool_use", "id": "tu9"')],
    "anthropic-session": [('"tool_use_id": "tu1"', '"tool_use_id": "tu9"')],
    "atif": [('"source_call_id": "c1"', '"source_call_id": "c9"')],
    "codex": [('"function_call_output", "call_id": "c1"', '"function_call_output", "call_id": "c9"')],
    "inspect": [('"tool_call_id": "c1"', '"tool_call_id": "c9"')],
    "openai-chat": [('"tool_call_id": "c1"', '"tool_call_id": "c9"')],
    "openai-responses": [('"function_call_output", "call_id": "c1"', '"function_call_output", "call_id": "c9"')],
    "swe-agent": [('"tool_call_ids": ["c1"]', '"tool_call_ids": ["c9"]')],
    "tau-bench": [('"tool_call_id": "c1"', '"tool_call_id": "c9"')],
}
VERSIONS = {
    "atif": [('"schema_version": "ATIF-v1.7"', '"schema_version": "ATIF-v9.9"')],
    "inspect": [('"version": 2', '"version": 99')],
}


def written(tmp_path: Path, name: str, data: bytes, stem: str = "trace") -> Path:
    path = tmp_path / f"{stem}{SUFFIX.get(name, '.json')}"
    path.write_bytes(data)
    return path


def changed(name: str, pairs: list[tuple[str, str]]) -> bytes:
    text = sample_trace(name).decode()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text.encode()


def told(path: Path, name: str) -> str:
    """The one error, or all warnings; strict must refuse what was warned of."""
    error: TraceError | None = None
    try:
        traces = import_traces(path, name)
    except TraceError as caught:
        error = caught
    if error is not None:
        assert str(path) in error.where
        assert error.expected
        assert error.mend
        return f"error: {error.what}"
    issues = " | ".join(issue for episode in traces.episodes for issue in episode.issues)
    if issues:
        with pytest.raises(TraceError):
            import_traces(path, name, strict=True)
    return issues


ENDS = {"otlp": ("startTimeUnixNano", "endTimeUnixNano"), "openinference": ('"start_time"', '"end_time"')}


def backwards(name: str, data: bytes) -> bytes:
    text = data.decode().replace("flightschool.synthetic_time", "x")
    if name in ENDS:
        start, end = ENDS[name]
        return text.replace(start, "\0").replace(end, start).replace("\0", end).encode()
    return re.sub(r"12:00:(\d\d)", lambda m: f"12:00:{59 - int(m[1]):02}", text).encode()


BROKEN: dict[str, tuple[Callable[[str, bytes], bytes], str]] = {
    "half-written": (lambda _, data: data[: len(data) * 7 // 10], "error"),
    "not UTF-8": (lambda _, data: data.replace(b"State of", b"St\xe4te of"), "error: .*UTF-8"),
    "UTF-16": (lambda _, data: data.decode().encode("utf-16"), "error"),
    "UTF-16, told by content": (lambda _, data: data.decode().encode("utf-16"), "error: .*UTF-8"),
    "NUL bytes": (lambda _, data: data.replace(b"State of", b"State\0of"), "error"),
    "a list of nothing": (lambda _, data: b"[null, 1, []]", "error"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", IMPORT_FORMATS)
def test_what_cannot_be_read_is_one_error(name: str, how: str, tmp_path: Path) -> None:
    breaks, expected = BROKEN[how]
    path = written(tmp_path, name, breaks(name, sample_trace(name)))
    assert re.match(expected, told(path, "auto" if "by content" in how else name))


@pytest.mark.parametrize("name", TIMED)
def test_a_clock_that_goes_back_is_named(name: str, tmp_path: Path) -> None:
    assert "clock" in told(written(tmp_path, name, backwards(name, sample_trace(name))), name)


@pytest.mark.parametrize("name", CYCLES)
def test_cyclic_parents_are_named(name: str, tmp_path: Path) -> None:
    assert re.search("ancestor|cycl", told(written(tmp_path, name, changed(name, CYCLES[name])), name))


@pytest.mark.parametrize("name", ORPHANS)
def test_results_without_calls_are_named(name: str, tmp_path: Path) -> None:
    assert re.search(
        "no call|no pending call|answers", told(written(tmp_path, name, changed(name, ORPHANS[name])), name)
    )


@pytest.mark.parametrize("name", VERSIONS)
def test_unknown_versions_are_named(name: str, tmp_path: Path) -> None:
    assert "version" in told(written(tmp_path, name, changed(name, VERSIONS[name])), name)


@pytest.mark.parametrize("name", IMPORT_FORMATS)
def test_ids_used_twice_are_told_apart_and_named(name: str, tmp_path: Path) -> None:
    for stem in ("one", "two"):
        written(tmp_path, name, sample_trace(name), stem)
    traces: TraceSet = import_traces(tmp_path, name)
    assert len({episode.id for episode in traces.episodes}) == len(traces.episodes) == 2
    if name == "swe-agent":
        return  # its files are named by what they are about
    assert "used 2 times" in " | ".join(traces.episodes[1].issues)
    with pytest.raises(TraceError):
        import_traces(tmp_path, name, strict=True)


@pytest.mark.parametrize(
    "name",
    [name for name in IMPORT_FORMATS if sample_trace(name).count(b"\n") > 1 and name != "atif"],  # one document
)
def test_a_file_that_was_written_twice_gives_no_doubled_calls(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, sample_trace(name) * 2)
    assert told(path, name)
    assert [len(episode.calls) for episode in import_traces(path, name).episodes] in ([1], [1, 1])


def test_numbers_of_any_length_are_kept_and_build_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call with an argument that no record holds counts as incomplete; an answer may hold any number."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    lines = (tmp_path / "traces/example.jsonl").read_text().splitlines()[:3]
    lines[1] = re.sub(r'\{\\"order_id\\":\\"\w+\\"\}', '{\\\\"order_id\\\\":' + "9" * 400 + "}", lines[1])
    lines[2] = lines[2].replace('\\"status\\":\\"open\\"', '\\"status\\":' + "9" * 30)
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(lines) + "\n")
    traces = import_traces(path)
    assert [call.arguments for call in traces.episodes[1].calls] == [{"order_id": int("9" * 400)}] * 2
    assert traces.episodes[2].calls[0].value["status"] == int("9" * 30)
    assert main(["traces", "import", str(path), "--name", "long"]) == 0
    capsys.readouterr()
    assert main(["env", "build", "--from-traces", "long", "--name", "shop", "--json"]) == 0
    fidelity = json.loads(capsys.readouterr().out)["fidelity"]
    assert (fidelity["num_incomplete"], fidelity["calls"]["total"]) == (2, 4)
    assert main(["env", "check", "shop"]) == 1  # the task of the incomplete calls is barred, by its name
    assert main(["rollout", "shop", "--policy", "oracle", "-n", "2"]) == 0


def test_nothing_half_imported_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    place = tmp_path / "recordings"
    place.mkdir()
    for number in range(20):
        written(place, "openai-chat", sample_trace("openai-chat"), f"{number:02}")
    written(place, "openai-chat", sample_trace("openai-chat")[:-40], "99")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["traces", "import", str(place), "--name", "june"]) == 2
    assert "99.json" in capsys.readouterr().err
    assert main(["traces", "show", "june"]) == 2
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - before <= {
        tmp_path / ".flightschool" / "redaction.key",
        tmp_path / ".flightschool" / "store.sqlite",
    }
