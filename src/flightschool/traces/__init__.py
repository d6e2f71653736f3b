"""Traces: what a team recorded, read into one form, redacted, looked at, and written in open formats.

``EpisodeReader`` reads thirteen formats piece by piece (``formats/``, one file each); ``import_traces`` reads one into
memory; ``Redactor`` takes secrets and personal data out on the way; ``summarise`` says what a set holds; ``export``
writes four formats and says what they lose. Nothing is guessed: what is missing or truncated is named in ``issues``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightschool.lazy import on_first_use

if TYPE_CHECKING:
    from flightschool.traces.effects import effect_by_name, looks_like_error
    from flightschool.traces.exporting import EXPORT_FORMATS, ExportReport, export
    from flightschool.traces.formats import OpenAIChatImporter, OtlpImporter, TauBenchImporter
    from flightschool.traces.importing import IMPORT_FORMATS, EpisodeReader, import_traces
    from flightschool.traces.loading import result_value
    from flightschool.traces.recording import episode_from_attempt
    from flightschool.traces.records import (
        RecordedCall,
        RecordedEpisode,
        RecordedTurn,
        TaskHint,
        TraceSet,
        Usage,
        total_usage,
    )
    from flightschool.traces.redaction import (
        RedactionReport,
        Redactor,
        read_names,
        redact_state,
        workspace_key,
    )
    from flightschool.traces.samples import sample_trace
    from flightschool.traces.storing import (
        StoredTraces,
        TraceRecord,
        load_traces,
        save_episodes,
        save_traces,
        trace_names,
    )
    from flightschool.traces.summary import (
        FanOut,
        IntentCluster,
        LatencyNumbers,
        StratumUse,
        ToolUse,
        TraceSummary,
        summarise,
    )
else:
    __getattr__ = on_first_use(__name__)

__all__ = [
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "EpisodeReader",
    "ExportReport",
    "FanOut",
    "IntentCluster",
    "LatencyNumbers",
    "OpenAIChatImporter",
    "OtlpImporter",
    "RecordedCall",
    "RecordedEpisode",
    "RecordedTurn",
    "RedactionReport",
    "Redactor",
    "StoredTraces",
    "StratumUse",
    "TaskHint",
    "TauBenchImporter",
    "ToolUse",
    "TraceRecord",
    "TraceSet",
    "TraceSummary",
    "Usage",
    "effect_by_name",
    "episode_from_attempt",
    "export",
    "import_traces",
    "load_traces",
    "looks_like_error",
    "read_names",
    "redact_state",
    "result_value",
    "sample_trace",
    "save_episodes",
    "save_traces",
    "summarise",
    "total_usage",
    "trace_names",
    "workspace_key",
]
