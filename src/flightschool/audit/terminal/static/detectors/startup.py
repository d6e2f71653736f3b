"""What Python and the shell load before the tests: configuration of pytest, shadowed modules, programs on PATH."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.agent_view import is_below
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.trust_map import PythonEntry

__all__ = ["detect"]

_SYSTEM: Final = ("/usr", "/bin", "/sbin")


def detect(case: Case) -> Iterator[FlawFinding]:
    """Hooks, shadowed modules, a PATH that the policy can write."""
    safe = any(
        word.startswith("PYTHONSAFEPATH=") and len(word) > 15
        for run in case.runs
        if run.program == "export"
        for word in run.argv
    )
    for entry in case.trust.python_entries:
        if entry.runner == "pytest":
            yield from _hooks(case, entry)
        if (
            not safe
            and not entry.isolated
            and _from_cwd(entry)
            and case.of_agent(entry.cwd + "/x")
            and case.view.may_write(entry.cwd)
        ):
            yield case.finding(
                "interpreter-startup",
                f"Python looks for modules in {entry.cwd} first, where the policy can put one that the tests import",
                entry.where,
                0.5,
                "start Python with -I, or from a folder of the tests",
            )
    yield from _path(case)


def _hooks(case: Case, entry: PythonEntry) -> Iterator[FlawFinding]:
    guards = " ".join(entry.guards)
    closed = "--noconftest" in guards and ("-c " in guards or "--config-file" in guards)
    folders = [posixpath.dirname(t) if t.endswith(".py") else t for t in entry.targets] or [entry.cwd]
    open_folder = next((f for f in folders if case.of_agent(f + "/conftest.py") and case.view.may_write(f)), "")
    if open_folder and not closed:
        yield case.finding(
            "pytest-hook",
            f"pytest loads conftest.py and settings from {open_folder}, where the policy can write",
            entry.where,
            0.6,
            "run tests in place below /tests with --noconftest, -c /dev/null and --rootdir=/tests",
        )


def _from_cwd(entry: PythonEntry) -> bool:
    """Whether ``sys.path`` begins with the working directory: ``-m``, ``-c`` and standard input."""
    words = entry.argv[1:]
    return (
        entry.argv[:1] != ()
        and "python" in posixpath.basename(entry.argv[0])
        and ("-m" in words[:3] or "-c" in words[:3] or "-" in words[:3] or len(words) == 0)
    )


def _path(case: Case) -> Iterator[FlawFinding]:
    plan = case.folder.plan
    settings = [(plan.env.get("PATH", ""), case.task.dockerfile)] if plan is not None else []
    for run in case.runs:
        if run.program == "export":
            settings += [(word.partition("=")[2], run.where) for word in run.argv[1:] if word.startswith("PATH=")]
    for text, where in settings:
        for place in text.split(":"):
            if any(is_below(place, system) for system in _SYSTEM):
                break  # what stands behind the system's programs replaces none of them
            shady = place in (".", "") or (place.startswith("/") and place != "/" and case.view.may_write(place))
            venv = place.endswith(("/venv/bin", "/.venv/bin", "/.local/bin", "/.cargo/bin", "/conda/bin"))
            if (
                text
                and shady
                and not venv
                and not place.startswith(("/root", "/opt", "/home"))
                and case.trust.grader_commands
            ):
                yield case.finding(
                    "path-trojan",
                    f"programs are looked for in {place or '.'} first, where the policy can write",
                    where,
                    0.5,
                    "set PATH to the system's folders in the tests",
                )
                break
