"""What the launcher is asked for, as plain data: the caller's ``SandboxSpec`` in the words of this side."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["DEFENCES", "Plan"]

DEFENCES = (
    "capabilities",
    "close_descriptors",
    "curated_view",
    "dumpable",
    "environment",
    "inodes",
    "ipc",
    "memory",
    "minimal_devices",
    "network",
    "no_new_privs",
    "parent_death",
    "pid",
    "pids",
    "proc_masks",
    "read_only",
    "seccomp",
    "size",
    "unprivileged_ids",
)
"""Each can be left out by name, so that a test can show that its probe fires without it. Never left out in use."""


@dataclass(frozen=True)
class Plan:
    """One sandbox."""

    mode: str
    """``range``: ids mapped to an unprivileged range (needs root); ``single``: one id mapped to the caller's own."""
    uid: int
    gid: int
    hostname: str
    tree: str = ""
    """Folder of a read-only image tree; empty for the curated view of the host."""
    binds: list[list[str]] = field(default_factory=list)
    """(source, target) pairs that are mounted read-only."""
    over_host: bool = False
    """The tree is a layer over the curated view."""
    changes: bool = False
    """The caller wants all that was written: the descriptor it gets is of the folder above the layers."""
    file_powers: bool = False
    workdir: str = "/"
    cpu_s: float = 0.0
    memory_bytes: int = 0
    address_space_bytes: int = 0
    pids: int = 0
    open_files: int = 0
    disk_bytes: int = 0
    inodes: int = 0
    wall_s: float = 0.0
    without: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: dict[str, Any]) -> Plan:
        """A plan from its JSON."""
        known = {one.name for one in fields(cls)}
        return cls(**{key: value for key, value in table.items() if key in known})

    def has(self, defence: str) -> bool:
        """Whether a defence is up. The init of a root with powers over files keeps its own; ``powers`` narrows them."""
        kept = defence == "capabilities" and self.file_powers and self.mode != "spawned"
        return defence not in self.without and not kept
