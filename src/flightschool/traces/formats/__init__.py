"""Trace formats, one file each: importers that read, exporters that write and say what they cannot hold."""

from flightschool.traces.formats.anthropic_messages import AnthropicMessagesImporter
from flightschool.traces.formats.anthropic_session import AnthropicSessionImporter
from flightschool.traces.formats.atif import AtifImporter
from flightschool.traces.formats.atif_export import atif_losses, export_atif
from flightschool.traces.formats.codex import CodexImporter
from flightschool.traces.formats.inspect_export import (
    export_inspect,
    inspect_header,
    inspect_losses,
    inspect_sample,
    write_inspect_archive,
)
from flightschool.traces.formats.inspect_log import InspectImporter, inspect_samples
from flightschool.traces.formats.langfuse import LangfuseImporter
from flightschool.traces.formats.langsmith import LangSmithImporter
from flightschool.traces.formats.openai_chat import OpenAIChatImporter, chat_losses, export_chat
from flightschool.traces.formats.openinference import OpenInferenceImporter
from flightschool.traces.formats.otlp import OtlpImporter
from flightschool.traces.formats.otlp_export import export_otlp, otlp_losses
from flightschool.traces.formats.responses import ResponsesImporter
from flightschool.traces.formats.swe_agent import SweAgentImporter
from flightschool.traces.formats.tau_bench import TauBenchImporter

__all__ = [
    "AnthropicMessagesImporter",
    "AnthropicSessionImporter",
    "AtifImporter",
    "CodexImporter",
    "InspectImporter",
    "LangSmithImporter",
    "LangfuseImporter",
    "OpenAIChatImporter",
    "OpenInferenceImporter",
    "OtlpImporter",
    "ResponsesImporter",
    "SweAgentImporter",
    "TauBenchImporter",
    "atif_losses",
    "chat_losses",
    "export_atif",
    "export_chat",
    "export_inspect",
    "export_otlp",
    "inspect_header",
    "inspect_losses",
    "inspect_sample",
    "inspect_samples",
    "otlp_losses",
    "write_inspect_archive",
]
