"""The file system of a sandbox: a capped tmpfs that is its only writable place, and read-only mounts under it."""

from __future__ import annotations

import contextlib
import errno
import os
from functools import cache
from pathlib import Path
from typing import Final

from flightschool.sandbox.node import layered, syscalls
from flightschool.sandbox.node.plan import Plan
from flightschool.sandbox.node.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC

__all__ = ["accounts", "build_root", "enter_root", "etc_view", "open_sources", "write_accounts"]

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
    sources = [plan.tree, *(source for source, _ in plan.binds)]
    stage = next(s for s in _STAGES if Path(s).is_dir() and not any(_beneath(x, s) for x in sources if x))
    caps = [f"size={plan.disk_bytes}"] if plan.has("size") else []
    caps += [f"nr_inodes={plan.inodes}"] if plan.has("inodes") else []
    syscalls.mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, ",".join(["mode=755", *caps]))
    root = stage
    if plan.over_host or plan.changes:
        root = layered.build(plan, opened[plan.tree], stage, tree_fd)
        _refuse_links(root, [target for _, target in plan.binds])
        _folders(root)
        if not _leads_by_link(root, plan.workdir):
            Path(root + plan.workdir).mkdir(parents=True, exist_ok=True)
        if plan.over_host:
            _system_links(root)
            _etc(plan, root)
    elif plan.tree:
        root = _overlay(opened[plan.tree], stage, tree_fd)
        _refuse_links(root, [plan.workdir, *(target for _, target in plan.binds)])
        _skeleton(plan, root)
    else:
        _skeleton(plan, root)
        _host_view(plan, root)
    for source, target in plan.binds:
        _bind_read_only(opened[source], root + target, plan.has("read_only"))
    _proc(plan, root)
    if plan.has("minimal_devices"):
        _devices(root)
    else:
        syscalls.mount("/dev", f"{root}/dev", None, MS_BIND | MS_REC)
    return root


def enter_root(root: str) -> int:
    """Make ``root`` the root, let go of the old one, and return a descriptor of the new: the way in for harvesting.

    Where all changes are wanted it is one of the folder that holds the layers, which no path inside leads to.
    """
    layers = Path(root).parent if Path(root).name == layered.ROOT else None
    way_in = None if layers is None else os.open(layers, os.O_PATH | os.O_DIRECTORY)
    os.chdir(root)
    syscalls.pivot_root(".", ".")
    syscalls.umount_detach(".")
    os.chdir("/")
    return os.open("/", os.O_PATH | os.O_DIRECTORY) if way_in is None else way_in


def _overlay(tree: str, stage: str, tree_fd: int | None) -> str:
    for name in ("lower", "upper", "work", "root"):
        (Path(stage) / name).mkdir(mode=0o755)
    if tree_fd is not None:
        syscalls.attach(tree_fd, f"{stage}/lower")
        tree = f"{stage}/lower"
    data = f"lowerdir={tree},upperdir={stage}/upper,workdir={stage}/work,userxattr"
    syscalls.mount("overlay", f"{stage}/root", "overlay", MS_NOSUID | MS_NODEV, data)
    return f"{stage}/root"


def _refuse_links(root: str, more: list[str]) -> None:
    """Until the root is entered, a link of the tree would be followed through the host's folders: none may stand where
    the set-up writes.
    """
    for path in [f"/{name}" for name in _FOLDERS] + [f"/dev/{name}" for name in ("pts", "shm", "mqueue")] + more:
        if _leads_by_link(root, path):
            raise OSError(errno.ELOOP, f"{path} of the image tree is a link, or below one")


def _leads_by_link(root: str, path: str) -> bool:
    done = root
    for part in path.split("/"):
        done = f"{done}/{part}" if part else done
        if part and Path(done).is_symlink():
            return True
    return False


def _folders(root: str) -> None:
    for name in _FOLDERS:
        Path(root, name).mkdir(exist_ok=True)
    for name in ("tmp", "var/tmp"):
        _mode(Path(root, name), 0o1777)


def _skeleton(plan: Plan, root: str) -> None:
    _folders(root)
    if plan.workdir != "/":
        Path(root + plan.workdir).mkdir(parents=True, exist_ok=True)
        _own(plan, root + plan.workdir)
    _own(plan, f"{root}/home/user")


def _mode(path: Path, mode: int) -> None:
    if path.stat().st_mode & 0o7777 == mode:
        return
    with contextlib.suppress(PermissionError):
        path.chmod(mode)


def _own(plan: Plan, path: str) -> None:
    if os.stat(path).st_uid == plan.uid:  # noqa: PTH116 - the path is absolute text throughout
        return
    with contextlib.suppress(PermissionError):  # in an image tree of a user whose id does not exist here
        os.chown(path, plan.uid, plan.gid)


def _host_view(plan: Plan, root: str) -> None:
    if not plan.has("curated_view"):
        Path(root, "host").mkdir()
        syscalls.mount("/", f"{root}/host", None, MS_BIND | MS_REC)
    for folder in _SYSTEM:
        _bind_read_only(folder, root + folder)
    _system_links(root)
    _etc(plan, root)


def _system_links(root: str) -> None:
    for link in _SYSTEM_LINKS:
        if Path(root + link).is_symlink():
            continue
        if Path(link).is_symlink():
            Path(root + link).symlink_to(Path(link).readlink())
        elif Path(link).is_dir():
            _bind_read_only(link, root + link)


def _etc(plan: Plan, root: str) -> None:
    """What the tree has of these stays as the tree has it."""
    for name, content in etc_view():
        place = f"{root}/etc/{name}"
        if content and os.path.lexists(place):
            continue
        if isinstance(content, bytes):
            _write(place, content)
        elif content:
            os.symlink(content, place)  # noqa: PTH211 - hot, as below
        else:
            _bind_read_only(f"/etc/{name}", place)
    for name in _ETC_KEYS:
        if Path(root, "etc", name).is_dir():
            syscalls.mount("tmpfs", f"{root}/etc/{name}", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=555")
    if not plan.over_host or not Path(root, "etc", "passwd").exists():
        write_accounts(plan, Path(root, "etc"))


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


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


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
    """Put them in place."""
    for name, text in accounts(plan).items():
        (etc / name).write_text(text)


def _bind_read_only(source: str, target: str, read_only: bool = True) -> None:
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    syscalls.mount(source, target, None, MS_BIND | MS_REC)
    attributes = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
    syscalls.mount_setattr(target, attributes | (syscalls.MOUNT_ATTR_RDONLY if read_only else 0))


def _proc(plan: Plan, root: str) -> None:
    proc = f"{root}/proc"
    if not plan.has("pid"):
        syscalls.mount("/proc", proc, None, MS_BIND | MS_REC)
        return
    syscalls.mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if not plan.has("proc_masks"):
        return
    boot = Path(root, "run", ".boot_id")
    boot.write_text(FIXED_BOOT_ID)
    syscalls.mount(str(boot), f"{proc}/sys/kernel/random/boot_id", None, MS_BIND)
    boot.unlink()
    for name in _PROC_READ_ONLY:
        if Path(proc, name).exists():
            syscalls.mount(f"{proc}/{name}", f"{proc}/{name}", None, MS_BIND | MS_REC)
            syscalls.mount_setattr(f"{proc}/{name}", syscalls.MOUNT_ATTR_RDONLY)
    for name in _PROC_EMPTY:
        if _anyone_reads(Path(proc, name)):
            syscalls.mount("/dev/null", f"{proc}/{name}", None, MS_BIND)
            syscalls.mount_setattr(f"{proc}/{name}", syscalls.MOUNT_ATTR_RDONLY, recursive=False)


def _devices(root: str) -> None:
    dev = Path(root, "dev")
    for name in _DEVICES:
        (dev / name).touch()
        syscalls.mount(f"/dev/{name}", str(dev / name), None, MS_BIND)
    for name in ("pts", "shm", "mqueue"):
        (dev / name).mkdir(exist_ok=True)
    _mode(dev / "shm", 0o1777)
    syscalls.mount("devpts", str(dev / "pts"), "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    for name, target in _DEVICE_LINKS.items():
        if not (dev / name).is_symlink():
            (dev / name).symlink_to(target)


def _anyone_reads(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:
        return False


def _beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
