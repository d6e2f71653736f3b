from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.training.test_progress import STATS, meter

from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.progress import StepProgress
from flightschool.training.settings import TrainingSettings
from flightschool.training.trackers import TensorBoardFile, Trackers, read_events, scalars


def row(step: int = 1) -> StepProgress:
    made = meter().step(step - 1, step, STATS, 1.0)
    return msgspec.structs.replace(
        made, staleness_histogram={0: 30, 1: 10}, success=0.25, groups=("g000000", "g000001")
    )


def test_every_number_of_a_row_has_a_name() -> None:
    figures = scalars(row())
    assert figures["success"] == 0.25
    assert figures["stats.ess"] == 1.0
    assert figures["staleness.share_1"] == 0.25
    assert "groups" not in figures
    numbers = {f.name for f in msgspec.structs.fields(StepProgress) if f.type in (int, float)}
    assert numbers <= figures.keys()


def test_event_files_hold_what_was_written(tmp_path: Path) -> None:
    file = TensorBoardFile(tmp_path)
    for step in (1, 300):
        file.write(step, scalars(row(step)), ())
    file.close()
    (path,) = tmp_path.iterdir()
    events = list(read_events(path))
    assert [step for step, _ in events] == [1, 300]
    assert events[0][1]["success"] == 0.25
    assert events[0][1]["stats/ess"] == 1.0
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="broken record"):
        list(read_events(path))


def test_event_files_are_read_by_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    file = TensorBoardFile(tmp_path)
    file.write(7, {"stats.ess": 0.5}, ())
    file.close()
    found = accumulator.EventAccumulator(str(tmp_path))
    found.Reload()
    (event,) = found.Scalars("stats/ess")
    assert (event.step, event.value) == (7, 0.5)


def test_a_tracker_that_fails_never_stops_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TrainingSettings(trackers=("tensorboard",))
    trackers = Trackers(settings, tmp_path, "r", Incidents(tmp_path / "i"))

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(TensorBoardFile, "write", full)
    trackers.write(row(1))
    trackers.write(row(2))
    trackers.close()
    (incident,) = read_incidents(tmp_path / "i")
    assert "tensorboard failed" in incident.what
    assert "no space left" in incident.what


def test_opentelemetry_gets_gauges_and_a_span_with_the_groups(tmp_path: Path) -> None:
    metrics = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    spans_export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    api_metrics, api_trace = pytest.importorskip("opentelemetry.metrics"), pytest.importorskip("opentelemetry.trace")
    reader = export.InMemoryMetricReader()
    api_metrics.set_meter_provider(metrics.MeterProvider([reader]))
    provider = trace.TracerProvider()
    provider.add_span_processor(spans_export.SimpleSpanProcessor(memory))
    api_trace.set_tracer_provider(provider)
    trackers = Trackers(TrainingSettings(trackers=("opentelemetry",)), tmp_path, "r", Incidents(tmp_path / "i"))
    trackers.write(row())
    trackers.close()
    assert read_incidents(tmp_path / "i") == ()
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    gauges = {metric.name: metric.data.data_points[0].value for metric in scope.metrics}
    assert gauges["flightschool.training.success"] == 0.25
    (span,) = memory.get_finished_spans()
    assert span.attributes["flightschool.groups"] == ("g000000", "g000001")


def test_trackio_keeps_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="trackio is not installed")
    trackers = Trackers(TrainingSettings(trackers=("trackio",)), tmp_path, "r", Incidents(tmp_path / "i"))
    trackers.write(row())
    trackers.close()
    assert read_incidents(tmp_path / "i") == ()
    assert list((tmp_path / "trackio").rglob("*.db"))
