"""Detectors of the static pass: each reads one case and tells findings. One file a class or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.detectors import (
    asserting,
    executing,
    guarding,
    handling,
    history,
    leaks,
    matching,
    numbers,
    printed,
    residue,
    same_process,
    self_reference,
    startup,
    strictness,
    verdict_flow,
    verdict_source,
    world,
)

__all__ = ["DETECTORS", "Detector"]

Detector: TypeAlias = Callable[[Case], Iterator[FlawFinding]]

DETECTORS: Final[tuple[Detector, ...]] = (
    leaks.detect,
    history.detect,
    residue.detect,
    verdict_flow.detect,
    verdict_source.detect,
    printed.detect,
    guarding.detect,
    startup.detect,
    asserting.detect,
    handling.detect,
    matching.detect,
    strictness.detect,
    numbers.detect,
    executing.detect,
    same_process.detect,
    self_reference.detect,
    world.detect,
)
