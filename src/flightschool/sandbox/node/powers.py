"""What is left to commands of a root that may rule over files: owners and modes, and nothing else.

An image is built by commands that hand files from one account to another. With a range of ids that is real. With one
id every file belongs to it whatever one does, so a change of owner is answered with success and does nothing.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from flightschool.sandbox.node import confine, seccomp, syscalls
from flightschool.sandbox.node.plan import Plan

__all__ = ["KEPT_MASK", "command_filter", "narrow"]

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID = 0, 1, 3, 4
_KEPT: Final = (_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID)
KEPT_MASK: Final = sum(1 << capability for capability in _KEPT)
_OWNER_CALLS: Final = ("chown", "fchown", "fchownat", "lchown")


def narrow(plan: Plan) -> None:
    """For a command between fork and exec; its init kept all capabilities over its own namespace."""
    for capability in range(confine.last_capability() + 1):
        if capability not in _KEPT:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
    version_3 = 0x20080522
    header = struct.pack("<Ii", version_3, 0)
    sets = struct.pack("<6I", KEPT_MASK, KEPT_MASK, 0, 0, 0, 0)
    syscalls.check(syscalls.raw("capset", header, ctypes.create_string_buffer(sets, len(sets))), "capset")
    if code := command_filter(plan):
        seccomp.install(code)


def command_filter(plan: Plan) -> bytes:
    """A further filter for commands; empty: none."""
    return seccomp.succeeding(_OWNER_CALLS) if plan.file_powers and plan.mode == "single" else b""
