"""Traces: what a team recorded, read into one form.

``import_traces`` reads OpenAI chat JSON lines, OpenTelemetry GenAI traces in OTLP JSON, and tau-bench result files;
``export`` writes the first two. Nothing is guessed: what is missing or truncated is named in ``issues``.
"""

from flightschool.traces.effects import effect_by_name, looks_like_error
from flightschool.traces.importing import EXPORT_FORMATS, IMPORT_FORMATS, export, import_traces
from flightschool.traces.loading import result_value
from flightschool.traces.openai_chat import OpenAIChatImporter
from flightschool.traces.otlp import OtlpImporter
from flightschool.traces.recording import episode_from_attempt
from flightschool.traces.records import RecordedCall, RecordedEpisode, TaskHint, TraceSet
from flightschool.traces.storing import TraceRecord, load_traces, save_traces, trace_names
from flightschool.traces.summary import ToolUse, TraceSummary, summarise
from flightschool.traces.tau_bench import TauBenchImporter

__all__ = [
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "OpenAIChatImporter",
    "OtlpImporter",
    "RecordedCall",
    "RecordedEpisode",
    "TaskHint",
    "TauBenchImporter",
    "ToolUse",
    "TraceRecord",
    "TraceSet",
    "TraceSummary",
    "effect_by_name",
    "episode_from_attempt",
    "export",
    "import_traces",
    "load_traces",
    "looks_like_error",
    "result_value",
    "save_traces",
    "summarise",
    "trace_names",
]
