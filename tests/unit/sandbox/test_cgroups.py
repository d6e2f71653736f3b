"""Control groups on a faked file system: real files in a temporary folder, and the kernel's rules about them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from flightschool.sandbox import Limits, SandboxSpec
from flightschool.sandbox.cgroups import ControlGroups, find_control_groups, memory_max
from flightschool.sandbox.enforcement import native_enforcement

MIB = 1 << 20
OF_ROOT = ("cgroup.procs", "cgroup.controllers", "cgroup.subtree_control")
BY_CONTROLLER = {
    "memory": ("memory.max", "memory.swap.max", "memory.events"),
    "pids": ("pids.max",),
    "cpu": ("cpu.max",),
}


class FakeFiles:
    """The kernel's side: files appear with their controllers, processes and controllers exclude one another."""

    def __init__(self, root: Path, controllers: str = "cpu memory pids", *, writable: str = "/") -> None:
        self.root = root
        self.writable = root / writable.strip("/")
        self.writes: list[tuple[str, str, str]] = []
        self.moved_in = True
        root.mkdir()
        self._furnish(root, controllers.split())

    def _furnish(self, group: Path, controllers: list[str]) -> None:
        more = [name for controller in controllers for name in BY_CONTROLLER.get(controller, ())]
        for name in (*OF_ROOT, *more):
            if not (group / name).exists():
                (group / name).write_text("")
        (group / "cgroup.controllers").write_text(" ".join(controllers))

    def _may(self, group: Path) -> None:
        if not group.is_relative_to(self.writable):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(group))

    def make(self, group: Path) -> None:
        self._may(group.parent)
        group.mkdir(exist_ok=True)
        self._furnish(group, self.read(group.parent, "cgroup.subtree_control").split())

    def read(self, group: Path, name: str) -> str:
        return (group / name).read_text()

    def write(self, group: Path, name: str, text: str) -> None:
        self._may(group)
        if not (group / name).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.writes.append((str(group.relative_to(self.root)), name, text))
        if name == "cgroup.subtree_control":
            if group != self.root and self.read(group, "cgroup.procs"):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            on = {*self.read(group, name).split(), text.removeprefix("+")}
            (group / name).write_text(" ".join(sorted(on)))
            for below in self.below(group):
                self._furnish(below, sorted(on))
        elif name == "cgroup.procs" and not self.moved_in:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif name != "cgroup.procs":
            (group / name).write_text(text)

    def below(self, group: Path) -> list[Path]:
        return [path for path in group.iterdir() if path.is_dir()]

    def remove(self, group: Path) -> None:
        self._may(group.parent)
        if self.below(group) or self.read(group, "cgroup.procs"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        shutil.rmtree(group)


def mounted(files: FakeFiles) -> str:
    v1 = "30 24 0:27 / /sys/fs/cgroup/memory rw shared:8 - cgroup cgroup rw,memory"
    return f"{v1}\n35 24 0:30 / {files.root} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"


def found(files: FakeFiles, own: str) -> ControlGroups | str:
    return find_control_groups(mounts=mounted(files), own=f"4:memory:/x\n0::{own}\n", files=files)


def test_limits_are_written_and_nothing_is_left(tmp_path: Path) -> None:
    files = FakeFiles(tmp_path / "cg")
    groups = found(files, "/")
    assert isinstance(groups, ControlGroups), groups
    assert groups.controllers == {"memory", "pids", "cpu"}
    limits = Limits(memory_bytes=64 * MIB, disk_bytes=16 * MIB, pids=9, cpus=0.5)
    group = groups.make(limits)
    told = {name: files.read(group.path, name) for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")}
    assert told == {
        "memory.max": str((64 + 16 + 32) * MIB), "memory.swap.max": "0", "pids.max": "9", "cpu.max": "50000 100000",
    }  # fmt: skip
    assert memory_max(limits) == 112 * MIB
    assert groups.make(Limits()).path != group.path
    assert files.read(groups.make(Limits()).path, "cpu.max") == "", "not limited unless asked for"
    (group.path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.oom_kills() == 2
    group.remove()
    assert not group.path.exists()
    assert group.oom_kills() == 0
    groups.close()
    assert [path.name for path in files.root.iterdir() if path.is_dir()] == []


def test_a_group_with_processes_has_its_groups_beside_it(tmp_path: Path) -> None:
    """As in a service: the group of this process may hand nothing down, the delegated one above it may."""
    files = FakeFiles(tmp_path / "cg", writable="/service")
    (files.root / "cgroup.subtree_control").write_text("cpu memory pids")
    service = files.root / "service"
    service.mkdir()
    files._furnish(service, ["cpu", "memory", "pids"])
    files.make(service / "app")
    (service / "app" / "cgroup.procs").write_text("77")
    (service / "cgroup.subtree_control").write_text("memory pids")
    files._furnish(service / "app", ["memory", "pids"])
    groups = found(files, "/service/app")
    assert isinstance(groups, ControlGroups), groups
    assert groups.base.parent == service
    assert groups.controllers >= {"memory", "pids"}
    assert [path.name for path in (service / "app").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("no controllers", "the kernel's controllers for memory and pids are not in"),
        ("not ours", "no group can be made in"),
        ("not moved", "no group with limits can be made in"),
        ("busy", "no group with limits can be made in"),
        ("outside", "lies outside what is mounted"),
    ],
)
def test_what_does_not_work_is_told_and_leaves_nothing(tmp_path: Path, how: str, told: str) -> None:
    files = FakeFiles(
        tmp_path / "cg",
        "hugetlb" if how == "no controllers" else "memory pids",
        writable="/nowhere" if how == "not ours" else "/",
    )
    own = "/"
    if how == "not moved":
        files.moved_in = False
    if how == "busy":
        files.make(files.root / "mine")
        (files.root / "mine/cgroup.procs").write_text("1")
        files.writable = files.root / "mine"
        (files.root / "mine/cgroup.controllers").write_text("memory pids")
        own = "/mine"
    if how == "outside":
        own = "/../elsewhere"
    said = found(files, own)
    assert isinstance(said, str)
    assert told in said
    assert [path for path in files.root.rglob("flightschool-*") if path.is_dir()] == []


def test_without_the_second_version_there_is_none() -> None:
    said = find_control_groups(mounts="30 24 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw\n", own="4:memory:/\n")
    assert said == "no control groups of version 2 are mounted"


def test_what_killed_callers_left_is_removed(tmp_path: Path) -> None:
    files = FakeFiles(tmp_path / "cg")
    (files.root / "cgroup.subtree_control").write_text("memory pids")
    dead = files.root / "flightschool-4194305-1"  # no kernel has such a pid
    living = files.root / f"flightschool-{os.getppid()}-1"
    for base in (dead, living):
        files.make(base)
        files.make(base / "3")
    assert isinstance(found(files, "/"), ControlGroups)
    assert not dead.exists()
    assert (living / "3").exists()


def test_a_group_is_never_half_limited(tmp_path: Path) -> None:
    files = FakeFiles(tmp_path / "cg")
    groups = found(files, "/")
    assert isinstance(groups, ControlGroups)
    (groups.base / "cgroup.subtree_control").write_text("memory")
    with pytest.raises(FileNotFoundError):
        groups.make(Limits())
    assert files.below(groups.base) == []


def test_the_record_says_what_keeps_what(tmp_path: Path) -> None:
    groups = found(FakeFiles(tmp_path / "cg"), "/")
    spec = SandboxSpec(limits=Limits(cpus=1.5))
    lines = {line.limit: line for line in native_enforcement(spec, "range", (), groups)}
    assert lines["memory_bytes"].mechanism.startswith("cgroup memory.max")
    assert str(memory_max(spec.limits)) in lines["memory_bytes"].bound
    assert lines["pids"].mechanism.startswith("cgroup pids.max")
    assert lines["cpus"].mechanism == "cgroup cpu.max"
    lines = {line.limit: line for line in native_enforcement(spec, "range", (), "not writable")}
    assert lines["memory_bytes"].mechanism.startswith("watcher")
    assert lines["cpus"].mechanism == "none: not writable"
