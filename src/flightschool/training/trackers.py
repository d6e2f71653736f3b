"""Where a run's figures go beside ``metrics.jsonl``: TensorBoard, trackio, OpenTelemetry. Imports none of them early.

TensorBoard's files are written here and need no package: an event file is a row of records, ``length · CRC · event ·
CRC``, an event a protocol buffer with three fields of ours. (The ``tensorboard`` package would bring a web server, gRPC
and protobuf into every training.) trackio and OpenTelemetry are spoken to through their own libraries, extras of the
package; OpenTelemetry exports over OTLP as its standard environment variables say.

Every figure leads to its episodes: a row carries the names of the groups it was made of, ``flightschool runs show RUN
--step N`` lists them. Figures stand over the *number of the row*, which only rises: a step that is skipped, or made
again after a crash, bears a number that was there before, and two points over one number hide one another. Which step a
row belongs to is a figure beside the others (``step``; ``optimizer_step`` in trackio, where that name is taken). A
tracker that fails is left alone for the rest of the run: figures never stop a training.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec

from flightschool.training.incidents import Incidents
from flightschool.training.progress import StepProgress
from flightschool.training.settings import TrainingSettings

__all__ = ["TensorBoardFile", "Tracker", "Trackers", "exports_itself", "read_events", "scalars"]


class Tracker(Protocol):
    """Takes the figures of a run."""

    def write(self, index: int, figures: Mapping[str, float], groups: Sequence[str]) -> None:
        """Figures of a row by its number, and the groups they were made of."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


def scalars(row: StepProgress) -> dict[str, float]:
    """All figures of a row by dotted name; shares of the staleness histogram instead of counts."""
    table = msgspec.to_builtins(row)
    figures = dict(_numbers(table, ""))
    total = sum(row.staleness_histogram.values())
    return figures | {f"staleness.share_{age}": n / total for age, n in row.staleness_histogram.items() if total}


def _numbers(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, dict) and name != "staleness_histogram":
            yield from _numbers(value, f"{above}{name}.")
        elif isinstance(value, int | float):
            yield f"{above}{name}", float(value)


class Trackers:
    """All trackers of a run.

    Args:
        settings: names them.
        folder: of the run.
        run: its name.
        incidents: are told of a tracker that fails.
    """

    def __init__(self, settings: TrainingSettings, folder: Path, run: str, incidents: Incidents) -> None:
        makers: dict[str, Callable[[], Tracker]] = {
            "tensorboard": lambda: TensorBoardFile(folder / "tensorboard"),
            "trackio": lambda: _Trackio(run, settings),
            "opentelemetry": lambda: _OpenTelemetry(run),
        }
        self._incidents = incidents
        self._open: dict[str, Tracker] = {}
        for name in settings.trackers:
            self._guarded(name, partial(self._begin, name, makers[name]))

    def write(self, row: StepProgress) -> None:
        """Figures of one row to all."""
        figures = scalars(row)
        del figures["number"]
        for name, tracker in list(self._open.items()):
            self._guarded(name, partial(tracker.write, row.number or row.step, figures, row.groups))

    def close(self) -> None:
        """Close all."""
        for name, tracker in list(self._open.items()):
            self._guarded(name, tracker.close)

    def _begin(self, name: str, make: Callable[[], Tracker]) -> None:
        self._open[name] = make()

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever a tracker raises, the training goes on
            failed = self._open.pop(name, None)
            with contextlib.suppress(Exception):
                if failed is not None:
                    failed.close()
            self._incidents.add("tracker", f"tracker {name} failed and is left alone: {type(error).__name__}: {error}")


# ------------------------------------------------------------------------------------------------ TensorBoard


class TensorBoardFile:
    """One event file; every start of a run writes its own, and TensorBoard shows them as one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"events.out.tfevents.{time.time_ns()}.flightschool").open("ab")
        self._append(_field(3, 2, b"brain.Event:2"))

    def write(self, index: int, figures: Mapping[str, float], groups: Sequence[str]) -> None:
        """See ``Tracker``. Names become paths, so that TensorBoard groups them."""
        del groups
        values = b"".join(
            _field(1, 2, _field(1, 2, name.replace(".", "/").encode()) + _field(2, 5, struct.pack("<f", value)))
            for name, value in figures.items()
        )
        self._append(_field(2, 0, _varint(index)) + _field(5, 2, values))
        self._file.flush()

    def close(self) -> None:
        """See ``Tracker``."""
        self._file.close()

    def _append(self, content: bytes) -> None:
        event = _field(1, 1, struct.pack("<d", time.time())) + content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked_crc(length) + event + _masked_crc(event))


def read_events(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """(number of the row, figures) of an event file of ours.

    Raises:
        ValueError: a record is torn or its check sum is wrong.
    """
    data, place = path.read_bytes(), 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        event = data[place + 12 : place + 12 + length]
        end = place + 16 + length
        if data[place + 8 : place + 12] != _masked_crc(data[place : place + 8]) or data[end - 4 : end] != _masked_crc(
            event
        ):
            raise ValueError(f"a broken record at byte {place}")
        fields = dict(_fields(event))
        if 5 in fields:
            rows = [dict(_fields(value)) for number, value in _fields(fields[5]) if number == 1]
            figures = {row[1].decode(): struct.unpack("<f", row[2])[0] for row in rows}
            yield int.from_bytes(fields.get(2, b""), "little"), figures
        place = end


def _field(number: int, kind: int, data: bytes) -> bytes:
    """A protocol buffer field: of bytes (kind 2), or of data that are encoded already."""
    return _varint(number << 3 | kind) + (_varint(len(data)) if kind == 2 else b"") + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields of a message; numbers as little-endian bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint().to_bytes(8, "little")
            continue
        length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield number, data[place : place + length]
        place += length


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), turned and shifted as TensorFlow's record files want it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


# ------------------------------------------------------------------------------------------------ libraries


class _Trackio:
    """trackio's local store; looked at with ``trackio show``."""

    def __init__(self, run: str, settings: TrainingSettings) -> None:
        self._library: Any = import_module("trackio")
        config = msgspec.to_builtins(settings.model_dump(mode="json"))
        self._library.init(project="flightschool", name=run, config=config, resume="allow", embed=False)

    def write(self, index: int, figures: Mapping[str, float], groups: Sequence[str]) -> None:
        """See ``Tracker``. As a figure the name ``step`` is reserved."""
        own = {"optimizer_step" if name == "step" else name: value for name, value in figures.items()}
        self._library.log({**own, "groups": " ".join(groups)}, step=index)

    def close(self) -> None:
        """See ``Tracker``."""
        self._library.finish()


_EXPORT_S = 3
"""Seconds that a collector has for a batch, unless its standard variables say otherwise: a run does not wait for one
that is gone."""


class _OpenTelemetry:
    """A gauge a figure, and a span a step that names its groups; through the providers that are set, else over OTLP."""

    def __init__(self, run: str) -> None:
        metrics, trace = import_module("opentelemetry.metrics"), import_module("opentelemetry.trace")
        _set_providers(metrics, trace)
        self._meter = metrics.get_meter("flightschool.training")
        self._tracer = trace.get_tracer("flightschool.training")
        self._gauges: dict[str, Any] = {}
        self._attributes = {"flightschool.run": run}
        self._closed = False

    def write(self, index: int, figures: Mapping[str, float], groups: Sequence[str]) -> None:
        """See ``Tracker``."""
        for name, value in figures.items():
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(f"flightschool.training.{name}")
            self._gauges[name].set(value, self._attributes)
        places = {"flightschool.step": int(figures["step"]), "flightschool.row": index}
        attributes = {**self._attributes, **places, "flightschool.groups": list(groups)}
        with self._tracer.start_as_current_span("training step", attributes=attributes):
            pass

    def close(self) -> None:
        """See ``Tracker``. Raises ``OSError`` if the collector did not take the last figures: exporters only log it."""
        if self._closed:
            return
        self._closed = True
        with _heard("opentelemetry.exporter") as failures:
            for module, getter in (("metrics", "get_meter_provider"), ("trace", "get_tracer_provider")):
                provider = getattr(import_module(f"opentelemetry.{module}"), getter)()
                if hasattr(provider, "force_flush"):
                    provider.force_flush(1000 * _EXPORT_S)
        if failures:
            raise OSError(failures[0])


@contextlib.contextmanager
def _heard(name: str) -> Iterator[list[str]]:
    """Collects the errors that a logger, or one below it, writes meanwhile."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ear, logger = Ear(logging.ERROR), logging.getLogger(name)
    logger.addHandler(ear)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)


def _set_providers(metrics: Any, trace: Any) -> None:  # Any: modules of an optional package
    """OTLP exporters, unless the program has set providers of its own. ``close`` flushes them, so exits need not."""
    sdk_metrics, sdk_trace = import_module("opentelemetry.sdk.metrics"), import_module("opentelemetry.sdk.trace")
    otlp = "opentelemetry.exporter.otlp.proto.http"
    if not isinstance(metrics.get_meter_provider(), sdk_metrics.MeterProvider):
        exporter = import_module(f"{otlp}.metric_exporter").OTLPMetricExporter(timeout=_timeout_s("METRICS"))
        reader = import_module("opentelemetry.sdk.metrics.export").PeriodicExportingMetricReader(exporter)
        metrics.set_meter_provider(sdk_metrics.MeterProvider([reader], shutdown_on_exit=False))
    if not isinstance(trace.get_tracer_provider(), sdk_trace.TracerProvider):
        exporter = import_module(f"{otlp}.trace_exporter").OTLPSpanExporter(timeout=_timeout_s("TRACES"))
        provider = sdk_trace.TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)


def _timeout_s(signal: str) -> int | None:
    """None leaves it to the exporter, which reads the standard variables."""
    named = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return None if any(os.environ.get(name) for name in named) else _EXPORT_S


def exports_itself() -> bool:
    """Whether the program has set OpenTelemetry providers of its own, so that no exporter of ours is needed."""
    sdk_metrics, sdk_trace = sys.modules.get("opentelemetry.sdk.metrics"), sys.modules.get("opentelemetry.sdk.trace")
    if sdk_metrics is None or sdk_trace is None:
        return False
    metrics, trace = import_module("opentelemetry.metrics"), import_module("opentelemetry.trace")
    return isinstance(metrics.get_meter_provider(), sdk_metrics.MeterProvider) and isinstance(
        trace.get_tracer_provider(), sdk_trace.TracerProvider
    )
