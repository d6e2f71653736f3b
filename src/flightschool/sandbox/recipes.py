"""A sandbox as a recipe for the native helper: the steps of ``node.roots`` and ``node.confine``, written down.

The helper carries recipes out and knows nothing of what a sandbox is: tables and texts are those of ``node``, and a
test compares, from inside, what both ways set up. A plan with a field that is not known here is the Python launcher's.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from flightschool.sandbox.node import confine, layered, powers, roots, seccomp, syscalls
from flightschool.sandbox.node.plan import Plan
from flightschool.sandbox.node.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC

__all__ = ["NAMESPACES", "Op", "Recipe", "knows", "recipe_of"]

NAMESPACES: Final = sum(syscalls.NAMESPACE_FLAGS.values())
MOST_SOURCES: Final = 256

_KNOWN: Final = frozenset(
    (
        "mode",
        "uid",
        "gid",
        "hostname",
        "tree",
        "binds",
        "over_host",
        "changes",
        "file_powers",
        "workdir",
        "cpu_s",
        "memory_bytes",
        "address_space_bytes",
        "pids",
        "open_files",
        "disk_bytes",
        "inodes",
        "wall_s",
    )
)
_READ_ONLY: Final = syscalls.MOUNT_ATTR_RDONLY
_HARMLESS: Final = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
_ALWAYS, _IF_THERE, _IF_FOLDER, _IF_READABLE = range(4)
_NOTHING, _A_LINK, _ANYTHING = range(3)
"""What stays if it is there already."""


class Op(IntEnum):
    """Kinds of records, as in ``native_helper/helper.h``."""

    HEAD = 1
    FILTER = 2
    LIMIT = 3
    OPEN = 4
    PRIVATE = 5
    MOUNT = 6
    BIND = 7
    OVERLAY = 8
    FOLDER = 9
    FOLDERS = 10
    MODE = 11
    OWN = 12
    WRITE = 13
    LINK = 14
    UNLINK = 15
    PIVOT = 16
    TOUCH = 17
    UNDER = 18
    ADDABLE = 19
    SYSTEM = 20


Part = int | str | bytes
Record = tuple[Op, tuple[Part, ...]]


def knows(plan: Mapping[str, Any]) -> bool:
    """Whether the helper can make this sandbox whole: every field known, no defence left out."""
    if any(value for key, value in plan.items() if key not in _KNOWN):
        return False
    return len(plan["binds"]) + bool(plan["tree"]) <= MOST_SOURCES


class Recipe:
    """Records, in the order in which they are carried out."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, op: Op, *parts: Part) -> None:
        """One more record."""
        self.records.append((op, parts))

    def mount(  # noqa: D102 - mount(2), with conditions and attributes
        self,
        source: str,
        target: str,
        kind: str = "",
        flags: int = MS_BIND,
        data: str = "",
        *,
        when: int = _ALWAYS,
        attributes: int = 0,
        recursive: bool = True,
        inside: bool = False,
    ) -> None:
        self.add(Op.MOUNT, source, target, kind, flags, data, when, attributes, int(recursive), int(inside))

    def packed(self) -> bytes:
        """The records as the helper reads them."""
        pieces = []
        for op, parts in self.records:
            pieces.append(struct.pack("<II", op, len(parts)))
            for part in parts:
                data = _bytes_of(part)
                pieces.append(struct.pack("<I", len(data)) + data + b"\0")
        return b"".join(pieces)


def _bytes_of(part: Part) -> bytes:
    if isinstance(part, int):
        return part.to_bytes(8, "little", signed=True)
    return os.fsencode(part) if isinstance(part, str) else part


def recipe_of(table: Mapping[str, Any]) -> Recipe:
    """The recipe of a plan that ``knows`` accepts."""
    plan = Plan.of(dict(table))
    recipe = Recipe()
    micro = 1_000_000
    recipe.add(
        Op.HEAD,
        int(plan.mode == "range"),
        plan.uid,
        plan.gid,
        plan.hostname,
        plan.tree,
        int(plan.cpu_s * micro),
        int(plan.wall_s * micro),
        int(plan.memory_bytes),
        powers.KEPT_MASK if plan.file_powers else 0,
    )
    recipe.add(Op.FILTER, seccomp.program(), confine.last_capability(), powers.command_filter(plan))
    for resource, value in confine.limits_of(plan).items():
        recipe.add(Op.LIMIT, resource, int(value))
    for path in ([plan.tree] if plan.tree else []) + [source for source, _ in plan.binds]:
        recipe.add(Op.OPEN, path)
    _root(recipe, plan)
    return recipe


def _root(recipe: Recipe, plan: Plan) -> None:
    """Paths begin with ``root``: a stage just made, or nothing over a tree, where the helper resolves names."""
    stage = roots.stage_for(plan)
    recipe.add(Op.PRIVATE)
    caps = f"mode=755,size={plan.disk_bytes},nr_inodes={plan.inodes}"
    recipe.mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, caps)
    root = "" if plan.tree else stage
    if plan.tree:
        recipe.add(Op.OVERLAY, 0, stage)
        recipe.add(Op.UNDER, f"{stage}/{layered.ROOT}")
    if plan.over_host:
        _system(recipe, stage)
    _skeleton(recipe, plan, root)
    if not plan.tree or plan.over_host:
        _host_view(recipe, plan, root)
    for number, (source, target) in enumerate(plan.binds, start=int(bool(plan.tree))):
        recipe.add(Op.BIND, number, source, root + target, _HARMLESS | _READ_ONLY, 0)
    _proc(recipe, root)
    _devices(recipe, root)
    recipe.add(Op.PIVOT, f"{stage}/{layered.ROOT}" if plan.tree else stage, stage if plan.changes else "")


def _system(recipe: Recipe, stage: str) -> None:
    for name in layered.open_folders():
        recipe.add(Op.ADDABLE, stage, name)
    recipe.add(Op.SYSTEM, stage)


def _skeleton(recipe: Recipe, plan: Plan, root: str) -> None:
    for name in roots._FOLDERS:
        recipe.add(Op.FOLDER, f"{root}/{name}", 0o777)
    for name in ("tmp", "var/tmp"):
        recipe.add(Op.MODE, f"{root}/{name}", 0o1777)
    if plan.over_host or plan.changes:
        recipe.add(Op.FOLDERS, root + plan.workdir, 1)
        return
    if plan.workdir != "/":
        recipe.add(Op.FOLDERS, root + plan.workdir, 0)
        recipe.add(Op.OWN, root + plan.workdir, plan.uid, plan.gid)
    recipe.add(Op.OWN, f"{root}/home/user", plan.uid, plan.gid)


def _host_view(recipe: Recipe, plan: Plan, root: str) -> None:
    def bind(source: str, target: str, link_stays: bool = False) -> None:
        recipe.add(Op.BIND, -1, source, target, _HARMLESS | _READ_ONLY, int(link_stays))

    for folder in () if plan.tree else roots._SYSTEM:
        bind(folder, root + folder)
    for link in roots._SYSTEM_LINKS:
        if Path(link).is_symlink():
            recipe.add(Op.LINK, str(Path(link).readlink()), root + link, _A_LINK)
        elif Path(link).is_dir():
            bind(link, root + link, link_stays=True)
    for name, content in roots.etc_view():
        place = f"{root}/etc/{name}"
        if isinstance(content, bytes):
            recipe.add(Op.WRITE, place, content, place if plan.tree else "")
        elif content:
            recipe.add(Op.LINK, content, place, _ANYTHING if plan.tree else _NOTHING)
        else:
            bind(f"/etc/{name}", place)
    for name in roots._ETC_KEYS:
        recipe.mount(
            "tmpfs",
            f"{root}/etc/{name}",
            "tmpfs",
            MS_RDONLY | MS_NOSUID | MS_NODEV,
            "size=4k,mode=555",
            when=_IF_FOLDER,
        )
    own = f"{root}/etc/passwd" if plan.tree else ""  # the tree's accounts stand as a whole; hence this one last
    for name, text in sorted(roots.accounts(plan).items(), key=lambda item: item[0] == "passwd"):
        recipe.add(Op.WRITE, f"{root}/etc/{name}", text, own)


def _proc(recipe: Recipe, root: str) -> None:
    proc = f"{root}/proc"
    recipe.mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    boot = f"{root}/run/.boot_id"
    recipe.add(Op.WRITE, boot, roots.FIXED_BOOT_ID)
    recipe.mount(boot, f"{proc}/sys/kernel/random/boot_id", inside=True)
    recipe.add(Op.UNLINK, boot)
    for name in roots._PROC_READ_ONLY:
        place = f"{proc}/{name}"
        recipe.mount(place, place, flags=MS_BIND | MS_REC, when=_IF_THERE, attributes=_READ_ONLY, inside=True)
    for name in roots._PROC_EMPTY:
        place = f"{proc}/{name}"
        recipe.mount("/dev/null", place, when=_IF_READABLE, attributes=_READ_ONLY, recursive=False)


def _devices(recipe: Recipe, root: str) -> None:
    dev = f"{root}/dev"
    for name in roots._DEVICES:
        recipe.add(Op.TOUCH, f"{dev}/{name}")
        recipe.mount(f"/dev/{name}", f"{dev}/{name}")
    for name in ("pts", "shm", "mqueue"):
        recipe.add(Op.FOLDER, f"{dev}/{name}", 0o777)
    recipe.add(Op.MODE, f"{dev}/shm", 0o1777)
    recipe.mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    for name, target in roots._DEVICE_LINKS.items():
        recipe.add(Op.LINK, target, f"{dev}/{name}", _A_LINK)
