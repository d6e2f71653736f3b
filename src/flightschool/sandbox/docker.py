"""Docker as the maker of the walls, where an engine answers. The last resort: slow, and a daemon that runs as root."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from functools import partial
from pathlib import Path
from typing import Final

from flightschool.errors import InputError
from flightschool.sandbox.cgroups import memory_max
from flightschool.sandbox.enforcement import spawned_enforcement
from flightschool.sandbox.launching import BOOT, PACKAGE_ROOT, plan_of
from flightschool.sandbox.node.plan import Plan
from flightschool.sandbox.node.roots import accounts
from flightschool.sandbox.records import Enforcement, SandboxSpec
from flightschool.sandbox.spawned import SpawnedProvider, Spawning

__all__ = ["DEFAULT_IMAGE", "DockerProvider"]

DEFAULT_IMAGE: Final = "python:3.12-slim"
_INSIDE: Final = "/run/agent"
_SHM_BYTES: Final = 64 << 20


class DockerProvider(SpawnedProvider):
    """Sandboxes by ``docker run``, the agent's socket relayed over its standard streams.

    Args:
        image: an image with Python 3.11 or later that the engine has; none is pulled.

    Raises:
        InputError: no ``docker``, or no engine answers.
    """

    name = "docker"
    mend = f"start the engine and pull an image with Python, for instance {DEFAULT_IMAGE}"
    harvests_after_stop = False

    def __init__(self, image: str = DEFAULT_IMAGE) -> None:
        super().__init__()
        found = shutil.which("docker")
        if found is None:
            raise InputError("docker not found", where="PATH", expected="a Docker client", mend="install Docker")
        command = [found, "version", "--format", "{{.Server.Version}}"]
        try:
            answer = subprocess.run(command, capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                f"docker does not answer: {error}", where=found, expected="an engine", mend="start the engine"
            ) from error
        if answer.returncode != 0:
            lines = answer.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(
                f"no engine answers: {lines[0] if lines else answer.returncode}",
                where=found,
                expected="a running Docker engine",
                mend="start the engine",
            )
        self._program = found
        self._image = image
        self._folder: Path | None = None

    def _spawn(self, spec: SandboxSpec, channel: socket.socket) -> Spawning:
        if spec.root is not None:
            raise InputError("docker runs no image tree here", where="root", expected="an image", mend="use native")
        label = f"flightschool-{uuid.uuid4().hex[:12]}"
        limits = spec.limits
        node = "flightschool/sandbox/node"
        words = [self._program, "run", "--rm", "--interactive", "--pull", "never", "--name", label]
        words += ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
        words += ["--user", f"{spec.uid}:{spec.gid}", "--hostname", spec.hostname, "--pids-limit", str(limits.pids)]
        words += ["--memory", str(memory_max(limits)), "--memory-swap", str(memory_max(limits))]
        for place in dict.fromkeys(("/tmp", "/home/user", spec.workdir)):
            owned = "mode=1777" if place == "/tmp" else f"mode=755,uid={spec.uid},gid={spec.gid}"
            options = f"exec,{owned},size={limits.disk_bytes // 2},nr_inodes={limits.inodes}"
            words += ["--tmpfs", f"{place}:{options}"]
        words += ["--shm-size", str(_SHM_BYTES), "--workdir", "/"]
        words += ["--mount", f"type=bind,source={PACKAGE_ROOT}/{node},target={_INSIDE}/{node},readonly"]
        for name, file in self._account_files(spec).items():
            words += ["--mount", f"type=bind,source={file},target=/etc/{name},readonly"]
        for mount in spec.mounts:
            words += ["--mount", f"type=bind,source={os.path.realpath(mount.source)},target={mount.target},readonly"]
        words += [self._image, "python3", "-I", "-S", "-c", BOOT, _INSIDE, "relayed", "0"]
        process: subprocess.Popen[bytes] = subprocess.Popen(
            words, stdin=channel.fileno(), stdout=channel.fileno(), stderr=subprocess.PIPE, start_new_session=True
        )
        return process, partial(_remove, self._program, label)

    def _account_files(self, spec: SandboxSpec) -> dict[str, Path]:
        """The files of accounts, which nothing inside can write: the root is read-only. One folder a provider."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="flightschool-docker-"))
            self._folder.chmod(0o755)  # nothing secret, and the engine may be another user
        texts = accounts(Plan.of(plan_of(spec, "spawned")))
        files = {name: self._folder / f"{name}-{spec.uid}-{spec.gid}" for name in ("passwd", "group")}
        for name, file in files.items():
            file.write_text(texts[name])
        return files

    async def aclose(self) -> None:
        """Close every sandbox."""
        await super().aclose()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _enforcement(self, spec: SandboxSpec) -> tuple[Enforcement, ...]:
        by_engine = {
            "memory_bytes": f"memory of the container ({memory_max(spec.limits)} bytes, files included)",
            "pids": "pids of the container",
        }
        return tuple(
            Enforcement(limit=line.limit, mechanism=f"{by_engine[line.limit]}; {line.mechanism}", bound=line.bound)
            if line.limit in by_engine
            else line
            for line in spawned_enforcement(spec, inodes="nr_inodes of each tmpfs", shm_bytes=_SHM_BYTES)
        )


async def _remove(program: str, label: str) -> None:
    command = [program, "rm", "--force", label]
    await asyncio.to_thread(partial(subprocess.run, command, capture_output=True, timeout=60, check=False))
