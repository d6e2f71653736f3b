"""The static pass over a task folder: what its text alone shows. Nothing is run."""

from flightschool.audit.terminal.static.hints import PROBE_HINTS
from flightschool.audit.terminal.static.scanning import StaticPass, examine_static, scan, scan_folders
from flightschool.audit.terminal.static.trust_map import (
    GraderImport,
    GraderProgram,
    GraderRead,
    LeakCandidate,
    PythonEntry,
    TrustMap,
    VerdictWrite,
)

__all__ = [
    "PROBE_HINTS",
    "GraderImport",
    "GraderProgram",
    "GraderRead",
    "LeakCandidate",
    "PythonEntry",
    "StaticPass",
    "TrustMap",
    "VerdictWrite",
    "examine_static",
    "scan",
    "scan_folders",
]
