"""What a sandbox is measured against: the floor in C, and other mechanisms that are installed.

The floor is compiled from ``native/floor.c``: one clone with the same namespaces, the same mounts (the recipe of the
sandbox, without what only writes files and sets owners), ``true``, and the wait. Nothing that starts a sandbox with
these walls can be faster; what is above it is hardening, agent and caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, TypeVar

from flightschool.errors import InfrastructureError
from flightschool.sandbox import SandboxSpec, find_bwrap
from flightschool.sandbox.helper import SOURCES, compile_c, compiler
from flightschool.sandbox.launching import plan_of
from flightschool.sandbox.recipes import NAMESPACES, Op, recipe_of

__all__ = ["Bubblewrap", "Floor", "Runc", "bubblewrap", "floor", "runc"]

_NOT_OF_THE_FLOOR = (Op.MODE, Op.OWN)
_RUN_S = 60.0
Rival = TypeVar("Rival", "Bubblewrap", "Runc")


class Floor:
    """The compiled floor; makes one bare clone for each byte it is sent."""

    def __init__(self, program: Path, recipe: Path, mode: str) -> None:
        self._command = [str(program), str(recipe), str(NAMESPACES), str(int(mode == "range"))]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env={}, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def once(self) -> float:
        """Milliseconds of one.

        Raises:
            InfrastructureError: the kernel refused.
        """
        return _answers(self._process, 1)[0]

    def rate(self, count: int, workers: int) -> float:
        """Made a second by ``workers`` processes side by side, ``count`` in all."""
        processes = [self._start() for _ in range(workers)]
        try:
            for process in processes:  # all are up before the clock starts
                _answers(process, 1)
            started = time.perf_counter()
            for process in processes:
                _ask(process, count // workers)
            for process in processes:
                _read(process, count // workers)
            return count // workers * workers / (time.perf_counter() - started)
        finally:
            for process in processes:
                _end(process)

    def close(self) -> None:
        """End the program."""
        _end(self._process)


def _ask(process: subprocess.Popen[bytes], count: int) -> None:
    if process.stdin is not None:
        process.stdin.write(b"x" * count)
        process.stdin.flush()


def _read(process: subprocess.Popen[bytes], count: int) -> list[float]:
    lines = [process.stdout.readline() for _ in range(count)] if process.stdout is not None else []
    if any(int(line or b"-1") < 0 for line in lines):
        raise InfrastructureError(
            "a bare clone failed", where="floor", expected="namespaces and mounts", mend="see `flightschool doctor`"
        )
    return [int(line) / 1e6 for line in lines]


def _answers(process: subprocess.Popen[bytes], count: int) -> list[float]:
    _ask(process, count)
    return _read(process, count)


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()


def floor(folder: Path, mode: str) -> Floor | None:
    """The floor of the plain sandbox in ``mode``, compiled into ``folder``; None without a compiler."""
    found = compiler()
    if found is None:
        return None
    recipe = recipe_of(plan_of(SandboxSpec(), mode))
    bare = [one for one in recipe.records if one[0] not in _NOT_OF_THE_FLOOR and not _only_writes(*one)]
    recipe.records = bare
    (folder / "recipe").write_bytes(recipe.packed())
    sources = [Path(__file__).parent / "native" / "floor.c", SOURCES / "steps.c", SOURCES / "recipe.c"]
    if compile_c(found, sources, folder / "floor"):
        return None
    return Floor(folder / "floor", folder / "recipe", mode)


def _only_writes(op: Op, parts: tuple[Any, ...]) -> bool:
    return op is Op.WRITE and "/etc/" in str(parts[0])


class Bubblewrap:
    """A fresh ``bwrap`` for each command: how sandboxes without a live agent run commands."""

    def __init__(self, program: str) -> None:
        words = [program, "--unshare-all", "--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr"]
        for link in ("/bin", "/sbin", "/lib", "/lib64"):
            if Path(link).is_symlink():
                words += ["--symlink", str(Path(link).readlink()), link]
            elif Path(link).is_dir():
                words += ["--ro-bind", link, link]
        self._command = [*words, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", "true"]

    def once(self) -> float:
        """Milliseconds of one command."""
        return _run(self._command)

    def close(self) -> None:
        """Nothing is left."""


class Runc:
    """``runc run`` of a bundle whose programs are the host's ``/usr``, read-only."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._count = 0
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        subprocess.run([program, "spec", *rootless], cwd=folder, check=True, capture_output=True, timeout=_RUN_S)
        config = json.loads((folder / "config.json").read_text())
        config["process"].update(terminal=False, args=["/usr/bin/true"])
        config["mounts"].append(
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"]}
        )
        (folder / "config.json").write_text(json.dumps(config))
        for name in ("usr", "proc", "dev", "sys"):
            (folder / "rootfs" / name).mkdir(parents=True)
        for link in ("/bin", "/lib", "/lib64"):
            if Path(link).is_symlink():
                (folder / "rootfs" / link[1:]).symlink_to(Path(link).readlink())

    def once(self) -> float:
        """Milliseconds of one container, from start to its removal."""
        self._count += 1
        state = ["--root", str(self._folder / "state")]
        name = f"floor-{os.getpid()}-{self._count}"
        return _run([self._program, *state, "run", "--bundle", str(self._folder), name])

    def close(self) -> None:
        """Nothing is left."""


def bubblewrap() -> Bubblewrap | None:
    """None where it is not installed, or refuses."""
    found = find_bwrap()
    return _tried(Bubblewrap(found)) if found else None


def runc(folder: Path) -> Runc | None:
    """None where it is not installed, or refuses."""
    found = next((p for p in ("/usr/bin/runc", "/usr/sbin/runc", "/usr/local/bin/runc") if os.access(p, os.X_OK)), None)
    if found is None:
        return None
    folder.mkdir()
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return _tried(Runc(found, folder))
    return None


def _tried(rival: Rival) -> Rival | None:
    try:
        rival.once()
    except InfrastructureError:
        return None
    return rival


def _run(command: list[str]) -> float:
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", timeout=_RUN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(str(error), where=command[0], expected="a run", mend="try it by hand") from error
    took = (time.perf_counter() - started) * 1e3
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise InfrastructureError(
            said or "it failed", where=command[0], expected="`true` to run", mend="try it by hand"
        )
    return took
