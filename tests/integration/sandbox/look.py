"""Run inside a sandbox: everything about it that can be seen from there, as JSON, but for ids that the host gives."""

import contextlib
import hashlib
import json
import os
import re
import resource
import stat
import sys
from pathlib import Path
from typing import Any

STATUS = (
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "CoreDumping",
    "SigBlk",
    "SigIgn",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Cpus_allowed",
    "PPid",
    "NSsid",
)
AGENT = (
    "environ",
    "mem",
    "maps",
    "exe",
    "root",
    "cwd",
    "fd",
    "ns/net",
    "limits",
    "uid_map",
    "oom_score_adj",
    "cmdline",
)


def text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        return f"errno {error.errno}"


def status(pid: str, leave: tuple[str, ...] = ()) -> dict[str, list[str]]:
    lines = [line.split(":", 1) for line in text(f"/proc/{pid}/status").splitlines()]
    return {key: value.split() for key, value in lines if key in STATUS and key not in leave}


def of_the_agent(name: str) -> str:
    path = f"/proc/1/{name}"
    try:
        return (
            str(sorted(map(str, Path(path).iterdir())))
            if name in ("fd", "root", "cwd")
            else Path(path).read_text().rstrip("\0")
        )
    except OSError as error:
        return f"errno {error.errno}"


def mounts() -> list[list[str]]:
    found = []
    for line in text("/proc/self/mountinfo").splitlines():
        words = line.split()
        dash = words.index("-")
        options = re.sub(r"(lowerdir|upperdir|workdir)=[^,]*", r"\1", words[-1])
        found.append([words[3], words[4], words[5], *words[6:dash], words[dash + 1], options])
    return found


def tree() -> dict[str, list[Any]]:
    """All that lies on the sandbox's own file system."""
    found: dict[str, list[Any]] = {}
    own = os.lstat("/").st_dev
    for folder, folders, files in os.walk("/"):
        folders[:] = [f for f in folders if _is_own(f"{folder}/{f}", own)]
        for path in (f"{folder}/{name}" for name in (*folders, *files)):
            this = os.lstat(path)
            content = ""
            if stat.S_ISLNK(this.st_mode):
                content = str(Path(path).readlink())
            elif stat.S_ISREG(this.st_mode) and this.st_dev == own:
                with contextlib.suppress(OSError):
                    content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            found[path] = [oct(this.st_mode), this.st_uid, this.st_gid, this.st_nlink, content]
    return found


def _is_own(path: str, device: int) -> bool:
    found = os.lstat(path)
    return found.st_dev == device or stat.S_ISLNK(found.st_mode)


def system() -> dict[str, list[Any]]:
    """Owners of what lies high in ``/usr``, which may be a file system of its own."""
    places = [path for pattern in ("*", "local/*", "lib/*", "local/lib/*/*") for path in Path("/usr").glob(pattern)]
    found = {str(path): path.lstat() for path in places}
    return {path: [oct(this.st_mode), this.st_uid, this.st_gid] for path, this in found.items()}


def look() -> dict[str, Any]:
    root = os.statvfs("/")
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "own status": status("self"),
        "agent's status": status("1", leave=("SigBlk", "SigIgn")),  # how an init waits for signals is its own
        "of the agent": {name: of_the_agent(name) for name in AGENT},
        "own": {name: text(f"/proc/self/{name}") for name in ("limits", "uid_map", "gid_map", "setgroups", "cgroup")},
        "hard limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "mounts": mounts(),
        "ids": [
            os.getresuid(),
            os.getresgid(),
            os.getgroups(),
            os.getpgrp() == os.getpid(),
            os.getsid(0) == os.getpid(),
        ],
        "descriptors": sorted((int(fd), stat.S_IFMT(os.fstat(int(fd)).st_mode)) for fd in "012"),
        "environment": dict(os.environ),
        "names": [os.uname().nodename, str(Path.cwd()), text("/proc/sys/kernel/random/boot_id")],
        "network": [line.split(":")[0] for line in text("/proc/net/dev").splitlines()],
        "addresses": text("/proc/net/if_inet6"),
        "space": [root.f_blocks, root.f_files, root.f_bsize, root.f_flag],
        "tree": tree(),
        "system": system(),
    }


json.dump(look(), sys.stdout)
