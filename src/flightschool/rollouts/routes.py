"""Experts chosen during generation, by span: what a trainer replays (see ``engines.experts``).

The engine tells, with each completion, the experts of every token it has computed so far. A token's experts are those
of the pass that computed it first; what a later pass would choose under newer weights is not what it was sampled with.
The last token of a completion is only computed when the conversation goes on after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flightschool.records import TokenSpan

__all__ = ["RouteBook", "routes_of"]


class RouteBook:
    """The experts of one attempt's spans, as they become known."""

    def __init__(self) -> None:
        self._known: dict[int, list[bytes]] = {}

    def note(self, path: Sequence[TokenSpan], routing_T: Sequence[bytes]) -> None:
        """Experts along a path of spans, root first."""
        place = 0
        for span in path:
            rows = list(routing_T[place : place + len(span.token_ids_T)])
            known = self._known.setdefault(span.id, [])
            known += rows[len(known) :]
            place += len(span.token_ids_T)

    def referring(self, spans: Sequence[TokenSpan], keep: Callable[[bytes], str]) -> tuple[TokenSpan, ...]:
        """The spans with references to one blob that holds all their experts."""
        rows = {span.id: self._known.get(span.id, []) for span in spans}
        blob = b"".join(row for span in spans for row in rows[span.id])
        if not blob:
            return tuple(spans)
        digest, place, told = keep(blob), 0, []
        for span in spans:
            mine = rows[span.id]
            if mine:
                width = len(mine[0])
                span = msgspec.structs.replace(span, routing_ref=f"{digest}#{place}:{len(mine)}:{width}")
                place += width * len(mine)
            told.append(span)
        return tuple(told)


def routes_of(reference: str, read: Callable[[str], bytes]) -> list[bytes]:
    """Experts of a span's first tokens.

    Args:
        reference: of the span.
        read: digest → blob.
    """
    digest, _, place = reference.partition("#")
    start, count, width = (int(number) for number in place.split(":"))
    blob = read(digest)
    return [blob[start + n * width : start + (n + 1) * width] for n in range(count)]
