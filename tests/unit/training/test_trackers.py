from __future__ import annotations

import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import needs
from tests.unit.training.test_progress import STATS, meter

from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.progress import StepProgress
from flightschool.training.settings import TrainingSettings
from flightschool.training.trackers import TensorBoardFile, Trackers, read_events, scalars

ROOT = Path(__file__).parents[3]


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
    """Every figure of two starts of a run, by the reader that its web page uses."""
    accumulator = needs.package("tensorboard.backend.event_processing.event_accumulator")
    for steps in ((1, 2), (3,)):  # the run was resumed in between
        file = TensorBoardFile(tmp_path)
        for step in steps:
            file.write(step, scalars(row(step)), ())
        file.close()
    found = accumulator.EventAccumulator(str(tmp_path))
    found.Reload()
    expected = {name.replace(".", "/"): value for name, value in scalars(row(3)).items()}
    assert set(found.Tags()["scalars"]) == set(expected)
    for name, value in expected.items():
        events = found.Scalars(name)
        assert [event.step for event in events] == [1, 2, 3]
        if not name.endswith(("wall_s", "eta_s", "tokens_per_s", "idle")):  # of the clock
            assert events[-1].value == pytest.approx(value, rel=1e-6)


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
    metrics = needs.package("opentelemetry.sdk.metrics", "opentelemetry-sdk")
    export = needs.package("opentelemetry.sdk.metrics.export", "opentelemetry-sdk")
    trace = needs.package("opentelemetry.sdk.trace", "opentelemetry-sdk")
    spans_export = needs.package("opentelemetry.sdk.trace.export", "opentelemetry-sdk")
    memory = needs.package(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter", "opentelemetry-sdk"
    ).InMemorySpanExporter()
    api_metrics = needs.package("opentelemetry.metrics", "opentelemetry-sdk")
    api_trace = needs.package("opentelemetry.trace", "opentelemetry-sdk")
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


OTLP = "opentelemetry-exporter-otlp-proto-http"
OTLP_RUN = (
    "import sys; from pathlib import Path\n"
    "from tests.unit.training.test_trackers import row\n"
    "from flightschool.training.incidents import Incidents\n"
    "from flightschool.training.settings import TrainingSettings\n"
    "from flightschool.training.trackers import Trackers\n"
    "trackers = Trackers(TrainingSettings(trackers=('opentelemetry',)), Path(sys.argv[1]), 'r',"
    " Incidents(Path(sys.argv[1]) / 'i'))\n"
    "trackers.write(row(4)); trackers.close()"
)


def test_opentelemetry_reaches_a_collector_over_http(tmp_path: Path) -> None:
    """The real exporters, to a collector on loopback; in a process of its own, since providers are set once."""
    needs.package("opentelemetry.exporter.otlp.proto.http", OTLP)
    heard: dict[str, list[bytes]] = {}

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            heard.setdefault(self.path, []).append(gzip.decompress(body) if zipped else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        subprocess.run([sys.executable, "-c", OTLP_RUN, str(tmp_path)], check=True, cwd=ROOT, env=env)
        server.shutdown()
    assert read_incidents(tmp_path / "i") == ()
    metrics = needs.package("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", OTLP)
    traces = needs.package("opentelemetry.proto.collector.trace.v1.trace_service_pb2", OTLP)
    gauges = {
        metric.name: metric.gauge.data_points[0].as_double
        for body in heard["/v1/metrics"]
        for resource in metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert gauges["flightschool.training.success"] == 0.25
    assert gauges["flightschool.training.staleness.share_1"] == 0.25
    (span,) = (
        span
        for body in heard["/v1/traces"]
        for resource in traces.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
    told = {item.key: item.value for item in span.attributes}
    assert told["flightschool.step"].int_value == 4
    assert [v.string_value for v in told["flightschool.groups"].array_value.values] == ["g000000", "g000001"]


def test_a_collector_that_is_gone_costs_seconds_and_is_an_incident(tmp_path: Path) -> None:
    needs.package("opentelemetry.exporter.otlp.proto.http", OTLP)
    env = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", OTLP_RUN, str(tmp_path)], check=True, cwd=ROOT, env=env, timeout=60)
    assert time.monotonic() - started < 15.0  # twice the ten seconds of the exporters' default, and the exit's
    (told,) = read_incidents(tmp_path / "i")
    assert "opentelemetry failed" in told.what


def test_trackio_keeps_the_figures(tmp_path: Path) -> None:
    """Read back by trackio itself; in a process of its own, since its folder is fixed when it is imported."""
    needs.package("trackio")
    code = (
        "import json, sys; from pathlib import Path\n"
        "from tests.unit.training.test_trackers import row\n"
        "from flightschool.training.incidents import Incidents\n"
        "from flightschool.training.settings import TrainingSettings\n"
        "from flightschool.training.trackers import Trackers\n"
        "for steps in ((1, 2), (3,)):\n"
        "    trackers = Trackers(TrainingSettings(trackers=('trackio',)), Path(sys.argv[1]), 'r',"
        " Incidents(Path(sys.argv[1]) / 'i'))\n"
        "    for step in steps: trackers.write(row(step))\n"
        "    trackers.close()\n"
        "from trackio.sqlite_storage import SQLiteStorage\n"
        "runs = SQLiteStorage.get_runs('flightschool')\n"
        "logs = SQLiteStorage.get_logs('flightschool', 'r')\n"
        "(Path(sys.argv[1]) / 'told.json').write_text(json.dumps([runs, logs], default=str))"
    )
    env = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=ROOT, env=env)
    assert read_incidents(tmp_path / "i") == ()
    runs, logs = json.loads((tmp_path / "told.json").read_text())
    assert runs == ["r"]
    assert [entry["step"] for entry in logs] == [1, 2, 3]
    assert {entry["groups"] for entry in logs} == {"g000000 g000001"}
    own = {name: value for name, value in scalars(row(3)).items() if name != "step"}
    assert own.keys() <= logs[-1].keys()
    assert logs[-1]["stats.ess"] == own["stats.ess"]
