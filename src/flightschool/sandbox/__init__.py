"""Sandboxes: a fresh isolated place for every attempt that executes code, destroyed whatever happens."""

from flightschool.sandbox.bubblewrap import BubblewrapProvider, find_bwrap
from flightschool.sandbox.chain import MECHANISMS, best_provider, require_native, try_mechanisms
from flightschool.sandbox.docker import DockerProvider
from flightschool.sandbox.native import NativeProvider
from flightschool.sandbox.pool import WarmPool
from flightschool.sandbox.protocols import Sandbox, SandboxProvider
from flightschool.sandbox.records import (
    DEFAULT_ENV,
    Enforcement,
    ExecResult,
    ImageTree,
    Limits,
    Mechanism,
    ReadOnlyMount,
    SandboxSpec,
    Stopped,
    Usage,
)

__all__ = [
    "DEFAULT_ENV",
    "MECHANISMS",
    "BubblewrapProvider",
    "DockerProvider",
    "Enforcement",
    "ExecResult",
    "ImageTree",
    "Limits",
    "Mechanism",
    "NativeProvider",
    "ReadOnlyMount",
    "Sandbox",
    "SandboxProvider",
    "SandboxSpec",
    "Stopped",
    "Usage",
    "WarmPool",
    "best_provider",
    "find_bwrap",
    "require_native",
    "try_mechanisms",
]
