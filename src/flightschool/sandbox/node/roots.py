"""The file system of a sandbox: a capped tmpfs that is its only writable place, and read-only mounts under it."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from flightschool.sandbox.node import layered, syscalls
from flightschool.sandbox.node.plan import Plan
from flightschool.sandbox.node.rooted import Rooted
from flightschool.sandbox.node.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC

__all__ = ["accounts", "build_root", "enter_root", "etc_view", "open_sources", "stage_for", "write_accounts"]

_STAGES: Final = ("/mnt", "/media", "/srv", "/sys", "/run")
"""Where the new root is put together: any folder that no source lies under. Only this mount namespace sees it."""

_FOLDERS: Final = ("proc", "dev", "tmp", "run", "var", "var/tmp", "etc", "home", "home/user", "root")
_SYSTEM: Final = ("/usr",)
_SYSTEM_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates.conf",
    "debian_version",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "pki",
    "profile",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl",
    "timezone",
)
"""Of the host's ``/etc``: what ordinary tools read. No accounts, no host names, no mounts, no credentials, no keys."""
_ETC_KEYS: Final = ("ssl/private",)

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PROC_READ_ONLY: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "tty")
_PROC_EMPTY: Final = [
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "kallsyms",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "latency_stats",
    "modules",
    "sched_debug",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
    "slabinfo",
    "swaps",
    "diskstats",
    "partitions",
    "cmdline",
    "mdstat",
    "config.gz",
]
FIXED_BOOT_ID: Final = "5a5a5a5a-0000-4000-8000-000000000001\n"


def open_sources(plan: Plan) -> dict[str, str]:
    """The folders that the caller named, opened while this process still is the caller: path → path of a descriptor.

    Later its ids are the sandbox's, which may not walk there (an interpreter in a private home, for instance).
    """
    wanted = [plan.tree, *(source for source, _ in plan.binds)]
    return {path: f"/proc/self/fd/{os.open(path, os.O_PATH)}" for path in wanted if path}


def build_root(plan: Plan, opened: dict[str, str], tree_fd: int | None = None) -> str:
    """Put the root together under a stage and return its path. Runs in the new mount namespace."""
    syscalls.mount("none", "/", None, MS_REC | MS_PRIVATE)
    stage = stage_for(plan)
    caps = [f"size={plan.disk_bytes}"] if plan.has("size") else []
    caps += [f"nr_inodes={plan.inodes}"] if plan.has("inodes") else []
    syscalls.mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, ",".join(["mode=755", *caps]))
    tree = layered.build(opened[plan.tree], stage, tree_fd) if plan.tree else ""
    root = f"{stage}/{layered.ROOT}" if plan.tree else stage
    under = Rooted(root, has_links=bool(plan.tree))
    try:
        _fill(plan, under, opened, stage, tree)
    finally:
        under.close()
    return root


def stage_for(plan: Plan) -> str:
    """Where the root is put together."""
    sources = [plan.tree, *(source for source, _ in plan.binds)]
    return next(s for s in _STAGES if Path(s).is_dir() and not any(_beneath(x, s) for x in sources if x))


def _fill(plan: Plan, under: Rooted, opened: dict[str, str], stage: str, tree: str) -> None:
    if plan.over_host:
        layered.build_system(tree, stage, under)
    _folders(under)
    if plan.over_host or plan.changes:
        with contextlib.suppress(OSError):  # whoever made the tree put something in its way: commands will tell
            under.folder(plan.workdir)
    else:
        if plan.workdir != "/":
            _own(plan, under.folder(plan.workdir))
        _own(plan, under.real("/home/user"))
    if not plan.tree:
        _host_view(plan, under)
    elif plan.over_host:
        _system_links(under)
        _etc(plan, under)
    for source, target in plan.binds:
        _bind_read_only(opened[source], under, target, plan.has("read_only"))
    _proc(plan, under)
    if plan.has("minimal_devices"):
        _devices(under)
    else:
        syscalls.mount("/dev", under.real("/dev"), None, MS_BIND | MS_REC)


def enter_root(root: str, way_in: str = "") -> int:
    """Make ``root`` the root, let go of the old one, and return a descriptor of the new: the way in for harvesting.

    Args:
        root: path of the new root.
        way_in: another folder whose descriptor is wanted: the one that holds the layers, which no path inside leads to.
    """
    fd = os.open(way_in, os.O_PATH | os.O_DIRECTORY) if way_in else -1
    os.chdir(root)
    syscalls.pivot_root(".", ".")
    syscalls.umount_detach(".")
    os.chdir("/")
    return fd if way_in else os.open("/", os.O_PATH | os.O_DIRECTORY)


def _folders(under: Rooted) -> None:
    for name in _FOLDERS:
        under.folder(f"/{name}")
    for name in ("/tmp", "/var/tmp"):
        _mode(under.real(name), 0o1777)


def _mode(path: str, mode: int) -> None:
    if Path(path).stat().st_mode & 0o7777 == mode:
        return
    with contextlib.suppress(PermissionError):
        Path(path).chmod(mode)


def _own(plan: Plan, path: str) -> None:
    if os.stat(path).st_uid == plan.uid:  # noqa: PTH116 - the path is absolute text throughout
        return
    with contextlib.suppress(PermissionError):  # in an image tree of a user whose id does not exist here
        os.chown(path, plan.uid, plan.gid)


def _host_view(plan: Plan, under: Rooted) -> None:
    if not plan.has("curated_view"):
        syscalls.mount("/", under.folder("/host"), None, MS_BIND | MS_REC)
    for folder in _SYSTEM:
        _bind_read_only(folder, under, folder)
    _system_links(under)
    _etc(plan, under)


def _system_links(under: Rooted) -> None:
    for link in _SYSTEM_LINKS:
        place = under.name(link)
        if Path(place).is_symlink():
            continue
        if Path(link).is_symlink():
            Path(place).symlink_to(Path(link).readlink())
        elif Path(link).is_dir():
            _bind_read_only(link, under, link)


def _etc(plan: Plan, under: Rooted) -> None:
    """What the tree has of these stays as the tree has it."""
    for name, content in etc_view():
        place = f"/etc/{name}"
        if content and plan.tree and under.there(place):
            continue
        if isinstance(content, bytes):
            under.write(place, content)
        elif content:
            os.symlink(content, under.name(place))  # noqa: PTH211 - hot, as below
        else:
            _bind_read_only(place, under, place)
    for name in _ETC_KEYS:
        if under.is_folder(f"/etc/{name}"):
            place = under.real(f"/etc/{name}")
            syscalls.mount("tmpfs", place, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=555")
    if not (plan.tree and under.there("/etc/passwd")):
        for name, text in accounts(plan).items():
            # What a tree has in the way stays there: it must not be able to keep its sandbox from starting.
            with contextlib.suppress(OSError) if plan.tree else contextlib.nullcontext():
                under.write(f"/etc/{name}", text.encode())


@cache
def etc_view() -> tuple[tuple[str, bytes | str], ...]:
    """Of the host's ``/etc``, read once: (name, content), (name, target of a link), or (name, "") for a folder."""
    runtimes = sorted(path.name for path in Path("/etc").glob("java-*"))  # a Java does not start without its own
    found: list[tuple[str, bytes | str]] = []
    for name in [*_ETC, *runtimes]:
        source = Path("/etc", name)
        with contextlib.suppress(PermissionError):  # what an ordinary user may not read, no sandbox of theirs does
            if source.is_symlink():
                found.append((name, str(source.readlink())))
            elif source.is_file():
                found.append((name, source.read_bytes()))
            elif source.is_dir():
                found.append((name, ""))
    return tuple(found)


def accounts(plan: Plan) -> dict[str, str]:
    """Name → text of a few files of ``/etc`` with fixed names in them, whatever the host's are."""
    users = "" if plan.uid == 0 else f"user:x:{plan.uid}:{plan.gid}:user:/home/user:/bin/bash\n"
    groups = "" if plan.gid == 0 else f"user:x:{plan.gid}:\n"
    last = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    return {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\n{users}{last}",
        "group": f"root:x:0:\ntty:x:5:\n{groups}nogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {plan.hostname}\n::1 localhost\n",
        "hostname": f"{plan.hostname}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": "",
    }


def write_accounts(plan: Plan, etc: Path) -> None:
    """Put them in place in a root that was entered."""
    for name, text in accounts(plan).items():
        (etc / name).write_text(text)


def _bind_read_only(source: str, under: Rooted, target: str, read_only: bool = True) -> None:
    if Path(source).is_dir():
        place = under.folder(target)
    else:
        if above := target.rpartition("/")[0]:
            under.folder(above)
        place = under.touch(target)
    syscalls.mount(source, place, None, MS_BIND | MS_REC)
    attributes = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
    syscalls.mount_setattr(place, attributes | (syscalls.MOUNT_ATTR_RDONLY if read_only else 0))


def _proc(plan: Plan, under: Rooted) -> None:
    proc = under.real("/proc")
    if not plan.has("pid"):
        syscalls.mount("/proc", proc, None, MS_BIND | MS_REC)
        return
    syscalls.mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if not plan.has("proc_masks"):
        return
    boot = under.write("/run/.boot_id", FIXED_BOOT_ID.encode())
    syscalls.mount(boot, f"{proc}/sys/kernel/random/boot_id", None, MS_BIND)
    Path(boot).unlink()
    for name in _PROC_READ_ONLY:
        if Path(proc, name).exists():
            syscalls.mount(f"{proc}/{name}", f"{proc}/{name}", None, MS_BIND | MS_REC)
            syscalls.mount_setattr(f"{proc}/{name}", syscalls.MOUNT_ATTR_RDONLY)
    for name in _PROC_EMPTY:
        if _anyone_reads(Path(proc, name)):
            syscalls.mount("/dev/null", f"{proc}/{name}", None, MS_BIND)
            syscalls.mount_setattr(f"{proc}/{name}", syscalls.MOUNT_ATTR_RDONLY, recursive=False)


def _devices(under: Rooted) -> None:
    for name in _DEVICES:
        syscalls.mount(f"/dev/{name}", under.touch(f"/dev/{name}"), None, MS_BIND)
    for name in ("pts", "shm", "mqueue"):
        under.folder(f"/dev/{name}")
    _mode(under.real("/dev/shm"), 0o1777)
    flags, data = MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
    syscalls.mount("devpts", under.real("/dev/pts"), "devpts", flags, data)
    for name, target in _DEVICE_LINKS.items():
        place = Path(under.name(f"/dev/{name}"))
        if place.is_symlink():
            continue
        if place.is_char_device():  # of a system's own, that perhaps nobody here may remove
            syscalls.mount(str(place.parent / target), str(place), None, MS_BIND)
        else:
            place.symlink_to(target)


def _anyone_reads(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:
        return False


def _beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
