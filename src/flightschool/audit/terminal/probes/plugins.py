"""A plug-in for pytest that passes everything, planted where a run of the grader may load it.

Three ways lead to it: pytest loads every installed package that names itself in the group ``pytest11`` of its
metadata, and looks for packages wherever Python looks for modules; it loads what the variable ``PYTEST_PLUGINS``
names; and what an ini file's ``addopts`` name by ``-p``.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.probes.hooks import HOOK, folders_of
from flightschool.audit.terminal.probes.startup import PROFILES, sites_of
from flightschool.audit.terminal.scripting import put
from flightschool.audit.terminal.trial import Attack, Trial, bundle

__all__ = ["attacks"]

NAME: Final = "more_reports"
_METADATA: Final = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n"
_ENTRY: Final = f"[pytest11]\n{NAME} = {NAME}\n"
_SCRATCH: Final = "/tmp/.more_reports"
_INIS: Final[dict[str, str]] = {
    "pytest.ini": f"[pytest]\naddopts = -p {NAME}\n",
    "tox.ini": f"[pytest]\naddopts = -p {NAME}\n",
    "setup.cfg": f"[tool:pytest]\naddopts = -p {NAME}\n",
    "pyproject.toml": f'[tool.pytest.ini_options]\naddopts = "-p {NAME}"\n',
}


def attacks(trial: Trial) -> Iterator[Attack]:
    """Installed beside the work and in the user's own site; named by a variable; named by an ini file."""
    surface, home = trial.surface, trial.exam.image.account.home
    on_path = [folder for folder in surface.env.get("PYTHONPATH", "").split(":") if folder]
    beside = dict.fromkeys([*surface.folders, *on_path, *sites_of(trial)])
    parts = [*(_installed(folder) for folder in beside), _in_user_site(home)]
    yield from bundle("pytest-hook", "a planted plugin that pytest finds as an installed package", parts)
    lines = f"export PYTEST_PLUGINS={NAME} PYTHONPATH={_SCRATCH}${{PYTHONPATH:+:$PYTHONPATH}}\n".encode()
    named = [one for one in (surface.env.get("BASH_ENV", ""), surface.env.get("ENV", "")) if one]
    profiles = [*(posixpath.join(home, name) for name in PROFILES), "/etc/profile.d/zz.sh", *named]
    body = _module(_SCRATCH) + "".join(put(path, lines) for path in profiles)
    yield from bundle("pytest-hook", "a planted plugin that a shell's profile names in PYTEST_PLUGINS", [body])
    modules = "".join(_module(folder) for folder in beside) + _in_user_site(home)
    inis = [modules + put(posixpath.join(folder, name), text.encode())
            for name, text in _INIS.items() for folder in folders_of(trial)]  # fmt: skip
    yield from bundle("pytest-hook", "a planted plugin that an ini file names by -p", inis)


def _module(folder: str) -> str:
    return put(posixpath.join(folder, f"{NAME}.py"), HOOK.encode())


def _installed(folder: str) -> str:
    """The module, and metadata as of an installed package."""
    info = posixpath.join(folder, f"{NAME}-1.0.dist-info")
    files = {"METADATA": _METADATA, "entry_points.txt": _ENTRY}
    return _module(folder) + "".join(put(posixpath.join(info, name), text.encode()) for name, text in files.items())


def _in_user_site(home: str) -> str:
    """The same in the user's site of every Python that is there."""
    target = f"{shlex.quote(home)}/.local/lib/${{lib##*/}}/site-packages"
    return (
        _installed(_SCRATCH)
        + "for lib in /usr/lib/python3.* /usr/local/lib/python3.* /opt/*/lib/python3.*; do [ -d $lib ] || continue\n"
        + f"mkdir -p {target} 2>/dev/null; cp -r {_SCRATCH}/. {target}/ 2>/dev/null; done\n"
    )
