"""OpenTelemetry GenAI traces in OTLP JSON (one document, or one document a line).

Spans of one ``gen_ai.conversation.id`` (else of one trace) make one episode; see ``span_episode`` for how. Spans may
stand in any order and are set aside on disk, so that memory holds one episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from flightschool.traces.formats.otlp_content import operation
from flightschool.traces.formats.otlp_spans import read_spans
from flightschool.traces.formats.semconv import attribute
from flightschool.traces.formats.span import Span, revived
from flightschool.traces.formats.span_episode import span_episode
from flightschool.traces.loading import broken
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.spooling import Spool

__all__ = ["OtlpImporter", "grouped_episodes"]


class OtlpImporter:
    """Importer of OTLP GenAI JSON."""

    format = "otlp"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file names resource spans, or spans one a line."""
        del path
        return any(key in head for key in (b'"resourceSpans"', b'"resource_spans"', b'"resourceLogs"')) or (
            b'"trace_id"' in head and b'"span_id"' in head and b'"context' in head
        )

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file in the order of their first instant. Raises ``TraceError`` naming file and line."""
        return grouped_episodes(read_spans(path), path, self.translated)

    def translated(self, span: Span) -> Span:
        """The span under the names of the conventions."""
        return span


def grouped_episodes(
    spans: Iterable[Span], path: Path, translate: Callable[[Span], Span] = lambda span: span
) -> Iterator[RecordedEpisode]:
    """Episodes of spans in any order; a trace belongs to the conversation that any of its spans names.

    Raises:
        TraceError: there is no GenAI span.
    """
    traces: dict[str, _Trace] = {}
    num_spans = 0
    with Spool() as spool:
        for span in spans:
            num_spans += 1
            span = translate(span)
            trace = traces.setdefault(span.trace, _Trace(first_ns=span.start_ns))
            trace.add(span)
            spool.add(span.trace, msgspec.to_builtins(span))
        groups: dict[str, list[str]] = {}
        for key, trace in traces.items():
            groups.setdefault(trace.conversation or key, []).append(key)
        kept = [(min(traces[key].first_ns for key in keys), name, keys) for name, keys in groups.items()
                if any(traces[key].is_genai for key in keys)]  # fmt: skip
        if not kept:
            raise broken(
                f"none of {num_spans} spans is a GenAI span",
                str(path),
                "spans with gen_ai.* attributes (operation chat, execute_tool …)",
                "switch the GenAI instrumentation on, content capture included",
            )
        for _, name, keys in sorted(kept):
            yield span_episode(name, [revived(row) for row in spool.rows(keys)], path)


class _Trace(msgspec.Struct):
    """What must be known of a trace before its spans are read again."""

    first_ns: int
    conversation: str = ""
    is_genai: bool = False

    def add(self, span: Span) -> None:
        self.first_ns = min(self.first_ns, span.start_ns)
        self.is_genai = self.is_genai or bool(operation(span))
        if not self.conversation:
            named = attribute(span.attributes, "gen_ai.conversation.id")
            self.conversation = named if isinstance(named, str) else ""
