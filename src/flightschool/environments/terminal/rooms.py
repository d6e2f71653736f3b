"""Sandboxes of a terminal task: the same image, limits and variables for the policy and for the grader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from flightschool.environments.terminal.records import TerminalTask
from flightschool.environments.terminal.trees import STAND_INS, Account, Image, Tree, account_env
from flightschool.records import Record
from flightschool.sandbox import DEFAULT_ENV, ImageTree, Limits, ReadOnlyMount, SandboxSpec

__all__ = ["VERDICT_FOLDER", "Rooms", "host_variables", "rooms_env"]

VERDICT_FOLDER: Final = "/logs/verifier"
MEMORY_MB, STORAGE_MB = 2048, 512
"""Where the task names none. Files live in memory, so storage is what a machine can spare and not what a disk has."""
MOST_STORAGE_MB: Final = 4096
MOST_ENTRIES: Final = 65536
_HOST_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Rooms(Record, frozen=True, kw_only=True):
    """Makes the specs of one task's sandboxes."""

    task: TerminalTask
    image: Image
    stand_ins: ReadOnlyMount

    def spec(self, tree: Tree, account: Account, wall_s: float) -> SandboxSpec:
        """A sandbox over ``tree`` in which a command may run for ``wall_s``."""
        return SandboxSpec(
            root=ImageTree(path=str(tree.root), over_host=tree.over_host),
            limits=self.limits(wall_s),
            uid=account.uid,
            gid=account.gid,
            workdir=self.image.workdir,
            mounts=(self.stand_ins,),
            changes=True,
            file_powers=True,
        )

    def limits(self, wall_s: float) -> Limits:
        """The task's resources as limits; the processor is limited by the wall clock."""
        resources = self.task.resources
        cpus = max(resources.cpus or 1.0, 1.0)
        return Limits(
            cpu_s=max(60.0, wall_s * cpus * 2),
            wall_s=wall_s + 60,
            memory_bytes=(resources.memory_mb or MEMORY_MB) << 20,
            address_space_bytes=32 << 30,
            pids=512,
            open_files=4096,
            disk_bytes=min(resources.storage_mb or STORAGE_MB, MOST_STORAGE_MB) << 20,
            inodes=MOST_ENTRIES,
        )


def rooms_env(image: Image, account: Account, more: Mapping[str, str]) -> dict[str, str]:
    """Variables of a command: those of the account, of the image, of the task; host's variables take their default."""
    env = {**account_env(account), **image.env, **{name: _with_defaults(value) for name, value in more.items()}}
    path = env.get("PATH", DEFAULT_ENV["PATH"])
    return {**env, "PATH": f"{STAND_INS}/bin:{path}"}


def host_variables(*tables: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the host's variables that are asked for without a default: secrets, as a rule, and not handed in."""
    asked = (match for table in tables for value in table.values() for match in _HOST_VARIABLE.finditer(value))
    return tuple(dict.fromkeys(match.group(1) for match in asked if match.group(2) is None))


def _with_defaults(value: str) -> str:
    return _HOST_VARIABLE.sub(lambda match: match.group(2) or "", value)
