"""Clients of fake servers, and requests to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flightschool.engines.served import FolderExporter, ServedEngine, SglangWire, VllmWire, Wire
from flightschool.protocols import GenerationRequest
from flightschool.records import WeightsVersion
from flightschool.testing.served import Event, ServedFake, VllmFake

PROMPT = tuple(range(20, 40))


def ask(session: str = "s", new: int = 12, stops: tuple[int, ...] = (), **changes: Any) -> GenerationRequest:
    return GenerationRequest(session=session, token_ids_T=PROMPT, max_new_tokens=new, stop_token_ids=stops, **changes)


def version(step: int, digest: str = "") -> WeightsVersion:
    return WeightsVersion(run="r", incarnation=0, step=step, digest=digest or f"d{step}")


def client(fake: ServedFake, folder: Path, **options: Any) -> ServedEngine:
    wire: Wire = VllmWire(fake.url) if isinstance(fake, VllmFake) else SglangWire(fake.url)
    exporter = FolderExporter(folder, folder.parent / "published")
    return ServedEngine(wire, vocab=300, max_context=200, run="r", exporter=exporter, **options)


def logprobs(event: Event) -> Any:
    """The place of a vLLM event where log-probabilities stand."""
    return event["choices"][0]["logprobs"]
