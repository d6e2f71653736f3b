"""Modules of the names that the grader imports, put where Python may look before it finds the real ones."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.payloads import FORGE, python_stub
from flightschool.audit.terminal.scripting import put
from flightschool.audit.terminal.trial import Attack, Trial, bundle

__all__ = ["attacks"]

_ALWAYS: Final = ("json", "csv", "re", "subprocess", "pathlib", "unittest", "hashlib")


def attacks(trial: Trial) -> Iterator[Attack]:
    """One module for each import, in every folder of the policy's reach."""
    made = {one.path for one in trial.work.outputs}
    names = [name for name in dict.fromkeys([*trial.surface.modules, *_ALWAYS]) if name not in sys.builtin_module_names]
    data = python_stub(f"os.system({FORGE!r})\nos._exit(0)")
    parts = []
    for name in names:
        for folder in trial.surface.folders:
            path = posixpath.join(folder, f"{name}.py")
            if path not in made and name not in ("os", "io", "abc", "codecs", "site", "stat"):
                parts.append(put(path, data))
    flaw = "interpreter-startup"
    yield from bundle(flaw, "a module of the name of one that the grader imports", parts)
