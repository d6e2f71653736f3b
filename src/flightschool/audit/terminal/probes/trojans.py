"""Programs of the names that the grader calls, in every folder in which it may look for them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.payloads import FORGE, PASS_LINES, stub
from flightschool.audit.terminal.scripting import put
from flightschool.audit.terminal.trial import Attack, Trial, bundle

__all__ = ["attacks"]

_ALWAYS: Final = (
    "python3",
    "python",
    "pytest",
    "bash",
    "diff",
    "cmp",
    "grep",
    "jq",
    "sha256sum",
    "cat",
    "node",
    "uvx",
    "curl",
)


def attacks(trial: Trial) -> Iterator[Attack]:
    """Programs that write the verdict, and programs that only end well."""
    surface = trial.surface
    names = tuple(dict.fromkeys([*surface.programs, *_ALWAYS]))
    home = trial.exam.image.account.home
    usual = [*surface.program_folders, f"{home}/bin", f"{home}/.local/bin", f"{trial.exam.image.workdir}/bin"]
    made = {one.path for one in trial.work.outputs} | {one.path for one in surface.shipped}
    commands = (
        (FORGE, "that write the verdict"),
        (f"printf '%s' '{PASS_LINES}'", "that print passed tests and end well"),
    )
    for command, told in commands:
        data = stub("shell", command) or b""
        paths = [posixpath.join(folder, name) for name in names for folder in dict.fromkeys(usual)]
        parts = [put(path, data, mode=0o755) for path in paths if path not in made]
        yield from bundle("path-trojan", f"programs {told}, of the names that the grader calls,", parts)
