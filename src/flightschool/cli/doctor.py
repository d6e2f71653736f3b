"""``doctor``: what this machine can do, and what is not built yet."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from flightschool.cli import output
from flightschool.cli.verb import verb
from flightschool.engines.devices import num_devices
from flightschool.records import Record

__all__ = ["Finding", "examine", "register"]

LEAST_SQLITE = (3, 35)
LEAST_MEMORY_GB = 4.0
LEAST_DISK_GB = 3.0


class Finding(Record, frozen=True, kw_only=True):
    """One line of the examination."""

    name: str
    state: str
    """``ok``, ``note`` (works, with a limit worth knowing) or ``missing`` (the main job cannot run)."""
    found: str
    mend: str = ""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "doctor", example="flightschool doctor --json")(doctor)


def doctor() -> None:
    """Say what this machine can do; ends with 1 when the main job cannot run here."""
    findings = examine()
    signs = {"ok": "ok", "note": "note", "missing": "MISSING"}
    output.table("", ("", "what", "found", "mend"), [(signs[f.state], f.name, f.found, f.mend) for f in findings])
    ok = all(finding.state != "missing" for finding in findings)
    output.finish({"ok": ok, "checks": findings}, fell_short=not ok)


def examine() -> list[Finding]:
    """All findings, in the order they are shown."""
    checks: tuple[Callable[[], Finding | list[Finding]], ...] = (
        _python,
        _torch,
        _kernels,
        _accelerator,
        _cores,
        _memory,
        _disk,
        _sqlite,
        _models,
        _workspace,
        _sandboxes,
        _engines,
    )
    found: list[Finding] = []
    for check in checks:
        said = check()
        found += said if isinstance(said, list) else [said]
    return found


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding(
        name="python", state="ok" if ok else "missing", found=found, mend="" if ok else "use Python 3.11 or later"
    )


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding(name="torch", state="missing", found=f"cannot be imported: {error}", mend="pip install torch")
    return Finding(name="torch", state="ok", found=f"{torch.__version__}, {torch.get_num_threads()} threads")


def _kernels() -> Finding:
    try:
        from flightschool.engines.kernels import find_kernels
    except ImportError as error:
        return Finding(name="kernels", state="note", found=f"unknown without torch: {error}")
    kernels = find_kernels()
    if kernels.library is not None:
        return Finding(name="kernels", state="ok", found=kernels.found)
    mend = "on CPUs, a C compiler (gcc or clang) makes training and generation about a fifth faster"
    return Finding(name="kernels", state="note", found=f"{kernels.found}; torch attends", mend=mend)


def _accelerator() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding(name="accelerator", state="note", found="unknown without torch")
    if not torch.cuda.is_available():
        others = [kind for kind in ("xpu", "mps") if num_devices(kind)]
        told = ", ".join(f'{num_devices(kind)} x {kind}; use it with device = "{kind}"' for kind in others)
        found = told or "none; the built-in engine and trainer run on the CPU"
        return Finding(name="accelerator", state="ok", found=found)
    properties = torch.cuda.get_device_properties(0)
    found = f"{torch.cuda.device_count()} x {properties.name}, {properties.total_memory / 1e9:.0f} GB"
    return Finding(name="accelerator", state="ok", found=found + '; use it with device = "cuda"')


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if usable < 2:
        mend = "training and generation will share it: expect twice the time"
        return Finding(name="cores", state="note", found=f"{usable} usable", mend=mend)
    return Finding(name="cores", state="ok", found=f"{usable} usable")


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"
    if memory.available / 1e9 < LEAST_MEMORY_GB:
        return Finding(name="memory", state="note", found=found, mend=f"the main job wants {LEAST_MEMORY_GB:.0f} GB")
    return Finding(name="memory", state="ok", found=found)


def _disk() -> Finding:
    import psutil

    free_gb = psutil.disk_usage(str(Path.cwd())).free / 1e9
    if free_gb < LEAST_DISK_GB:
        return Finding(name="disk", state="note", found=f"{free_gb:.1f} GB free here", mend="checkpoints want room")
    return Finding(name="disk", state="ok", found=f"{free_gb:.1f} GB free here")


def _sqlite() -> Finding:
    ok = sqlite3.sqlite_version_info >= LEAST_SQLITE
    mend = "" if ok else "use a Python built with SQLite 3.35 or later"
    return Finding(name="sqlite", state="ok" if ok else "missing", found=sqlite3.sqlite_version, mend=mend)


def _models() -> Finding:
    from flightschool.engines.catalogue import MODELS, cache_root

    root = cache_root() / "models"
    ready = [name for name in MODELS if (root / name / "model.safetensors").is_file()]
    absent = [name for name in MODELS if name not in ready]
    found = f"{root}: {', '.join(ready) or 'empty'}"
    mend = f"get it once with: flightschool models get {absent[0]}" if absent else ""
    return Finding(name="model cache", state="note" if absent else "ok", found=found, mend=mend)


def _workspace() -> Finding:
    from flightschool.cli.references import workspace_if_any
    from flightschool.errors import FlightschoolError

    try:
        space = workspace_if_any()
        if space is None:
            return Finding(name="workspace", state="ok", found="none here", mend="make one with: flightschool init DIR")
        with space:
            location = space.store.location
    except FlightschoolError as error:
        return Finding(name="workspace", state="note", found=error.what, mend=error.mend)
    return Finding(name="workspace", state="ok", found=f"{space.root}, records in {location}")


def _sandboxes() -> list[Finding]:
    """Every mechanism, best first, each tried for real; then which one would be used."""
    import asyncio

    from flightschool.sandbox import try_mechanisms

    tried = asyncio.run(try_mechanisms())
    working = [one.name for one in tried if one.works]
    lines = [
        Finding(name=f"sandbox {one.name}", state="ok" if one.works else "note", found=one.found, mend=one.mend)
        for one in tried
    ]
    if working:
        return [*lines, Finding(name="sandbox", state="ok", found=f"{working[0]} is used for code that policies run")]
    found = "none works: policies that execute code cannot be run; policies that call tools need no sandbox"
    return [*lines, Finding(name="sandbox", state="note", found=found, mend="see the lines above")]


def _engines() -> list[Finding]:
    """What may generate besides the built-in engine: each needs a package of its own here, or a server elsewhere."""
    served = "vLLM and SGLang servers are spoken to where a job's [engine] names their url; Ray is not built yet"
    return [
        _extra("engine hf", "transformers", "hf", "any causal model of transformers can be sampled and trained"),
        _extra("grammar", "llguidance", "grammar", "calls can be held to the tools' schemas"),
        Finding(name="other engines", state="note", found=served),
    ]


def _extra(name: str, package: str, extra: str, use: str) -> Finding:
    """Whether an optional package is here; only looked up, since importing it takes seconds."""
    try:
        return Finding(name=name, state="ok", found=f"{package} {version(package)}: {use}")
    except PackageNotFoundError:
        mend = f"pip install 'flightschool[{extra}]'"
        return Finding(name=name, state="note", found=f"{package} is not installed; with it, {use}", mend=mend)
