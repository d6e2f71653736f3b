"""An unpacked system as teams keep them beside their images: programs of this machine, its Python, and pytest."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
from pathlib import Path

__all__ = ["CTRF", "PYTEST", "NotHereError", "small_system"]

PYTEST = importlib.metadata.version("pytest")
CTRF = "0.3.5"
"""Version of the plug-in that the usual test script asks for; a stand-in of a few lines plays it."""
PROGRAMS = """
sh bash cat mkdir touch rm ls cp mv ln env chmod chown awk grep sed head tail tr sort wc diff dirname basename id uname
true false find tee sleep date mktemp curl dpkg-query
"""
_ASK = """\
import json, site, sys, sysconfig
print(json.dumps([sysconfig.get_path("stdlib"), site.getsitepackages()[-1], sys.version_info[:2]]))
"""
_PLUGIN = """\
def pytest_addoption(parser):
    parser.addoption("--ctrf", default="")
def pytest_sessionfinish(session):
    if session.config.getoption("--ctrf"):
        open(session.config.getoption("--ctrf"), "w").write("{}")
"""


class NotHereError(Exception):
    """This machine lacks what the system would be made of."""


def small_system(folder: Path) -> str:
    """Make the system; the version of its Python."""
    python = Path("/usr/bin/python3")
    programs = [Path("/usr/bin", name) for name in PROGRAMS.split()]
    lacking = [str(path) for path in (python, Path("/usr/bin/ldd"), *programs) if not path.exists()]
    if lacking:
        raise NotHereError(f"this machine has no {', '.join(lacking)}")
    told = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=60).stdout
    library, packages, (major, minor) = json.loads(told)
    if (major, minor) < (3, 11):
        raise NotHereError("this machine's Python is too old for pytest")
    shutil.copytree(library, folder / library.lstrip("/"), ignore=_not_wanted)
    modules = list((folder / library.lstrip("/")).rglob("*.so"))
    for file in [*programs, python, *_libraries([*programs, python, *modules])]:
        place = folder / str(file).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    (folder / "bin").symlink_to("usr/bin")
    _add_packages(folder / packages.lstrip("/"))
    for name, text in {
        "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
        "etc/group": "root:x:0:\n",
        "var/lib/dpkg/status": "Package: curl\nStatus: install ok installed\nArchitecture: all\nVersion: 8.0\n"
        "Maintainer: us\nDescription: fetches\n\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("root", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (folder / name).mkdir(parents=True)
    return f"{major}.{minor}"


def _not_wanted(folder: str, names: list[str]) -> set[str]:
    del folder
    return {"test", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo", "ensurepip"}.intersection(names)


def _libraries(files: list[Path]) -> set[Path]:
    """What programs and modules are linked with, by the paths that the loader looks at."""
    told = subprocess.run(["/usr/bin/ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    lines = (line for line in told.splitlines() if line.startswith("\t"))
    return {Path(word) for line in lines for word in line.split() if word.startswith("/") and Path(word).is_file()}


def _add_packages(place: Path) -> None:
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(file.locate())), place / file)
    about = place / f"pytest_json_ctrf-{CTRF}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pytest-json-ctrf\nVersion: {CTRF}\n")
    (about / "entry_points.txt").write_text("[pytest11]\nctrf = pytest_json_ctrf\n")
    (place / "pytest_json_ctrf.py").write_text(_PLUGIN)
