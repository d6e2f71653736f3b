"""Stands in for ``uv`` and ``uvx`` inside: what is asked for runs with the base's Python if exactly that is there.

This file is read twice: by the planner, for what a command asks for, and as a program inside, written out with its own
text. So it imports the standard library only, and nothing newer than Python 3.8 knows. Known is the common pattern
(``uvx``, ``uv tool run``, ``uv run``, ``uv pip install``, ``uv venv``, ``uv init``, ``uv add``); an option that is not
known here is a reason not to run, since it may change what is meant.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_FLAGS = """
-q --quiet -v --verbose -n --no-cache --no-progress --offline --isolated --no-project --no-config --system --no-sync
--frozen --active --no-build --no-dev --no-env-file --seed --clear --allow-existing --break-system-packages
--no-python-downloads --managed-python --no-managed-python --native-tls --bare --no-readme --app --no-pin-python
--no-workspace --dev --raw --refresh --system-site-packages
"""
_VALUES = "--color --cache-dir --link-mode --vcs --name --description --prompt --build-backend"
FLAGS = frozenset(_FLAGS.split())
"""Options without a value that leave what is asked for as it is."""
VALUES = frozenset(_VALUES.split())
"""Likewise with a value."""
_ASKING = "-p --python -w --with --from -r --requirement --requirements --with-requirements"
ASKING = frozenset(_ASKING.split())
"""Those whose value says what is asked for."""
NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*((?:[=<>!~][^;\[\]@]*)?)$")
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*$")
PYTHON = re.compile(r"(?:python|cpython-|cpython@)?(3(?:\.[0-9]+){1,2})$")


class Ask:
    """What one command asks for."""

    def __init__(self) -> None:
        self.verb = ""
        """``run``, ``pip install``, ``venv``, ``init``, ``add``, ``version``; empty: another one."""
        self.wants: list[str] = []
        """Requirements."""
        self.files: list[str] = []
        """Files of requirements."""
        self.python = ""
        """Version of Python; empty: any."""
        self.command: list[str] = []
        """Words to run."""
        self.project = False
        """Whether the requirements of a project in the working directory count too."""
        self.problem = ""
        """Why it cannot be stood in for."""


def parse(program: str, words: list[str]) -> Ask:
    """Read a command's words."""
    ask = Ask()
    rest = list(words)
    if program == "uvx":
        rest = ["tool", "run", *rest]
    rest = _global_options(rest, ask)
    if rest[:1] in (["--version"], ["-V"], ["version"], ["self"]):
        ask.verb = "version"
        return ask
    verb = " ".join(rest[:2]) if rest[:1] in (["tool"], ["pip"]) else "".join(rest[:1])
    rest = rest[2 if " " in verb else 1 :]
    if verb not in ("tool run", "run", "pip install", "venv", "init", "add"):
        ask.problem = ask.problem or f"uv {verb} is not stood in for"
        return ask
    ask.verb = "run" if verb == "tool run" else verb
    ask.project = verb == "run"
    plain = _options(rest, ask, stops=ask.verb == "run")
    if verb == "tool run":
        _tool(plain, ask)
    elif verb == "run":
        _run(plain, ask)
    elif verb in ("pip install", "add"):
        ask.wants += plain
    else:
        ask.command = plain
    bad = [want for want in ask.wants if not NAME.match(want.strip())]
    if bad:
        ask.problem = ask.problem or f"{bad[0]!r} is no plain requirement"
    return ask


def _global_options(rest: list[str], ask: Ask) -> list[str]:
    while rest and rest[0].startswith("-") and rest[0] not in ("--version", "-V"):
        name, equals, _ = rest[0].partition("=")
        if name in VALUES:
            rest = rest[1 if equals else 2 :]
        elif rest[0] in FLAGS:
            rest = rest[1:]
        else:
            ask.problem = f"uv's option {rest[0]} is not known here"
            return []
    return rest


def _options(rest: list[str], ask: Ask, stops: bool) -> list[str]:
    """Arguments that are no options; all that follows the first one where a command begins there."""
    plain: list[str] = []
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-") or word == "-":
            plain.append(word)
            if stops:
                return plain + rest
        elif word == "--":
            return plain + rest
        elif name in ASKING:
            _take(name, value if equals else (rest.pop(0) if rest else ""), ask)
        elif name in VALUES:
            if not equals and rest:
                rest.pop(0)
        elif word in ("-m", "--module") and stops:
            return ["python", "-m", *rest]
        elif word in FLAGS:
            ask.project = ask.project and word not in ("--no-project", "--isolated")
        else:
            ask.problem = ask.problem or f"uv's option {word} is not known here"
    return plain


def _take(name: str, value: str, ask: Ask) -> None:
    if name in ("-p", "--python"):
        known = PYTHON.match(value)
        ask.python = known.group(1) if known else ""
        if known is None:
            ask.problem = ask.problem or f"Python {value!r} is no plain version"
    elif name in ("-w", "--with"):
        ask.wants += [want for want in value.split(",") if want]
    elif name == "--from":
        ask.wants.append(value)
        ask.command = [value]
    else:
        ask.files.append(value)


def _tool(plain: list[str], ask: Ask) -> None:
    """``uvx`` runs a program of the package of its name, or of the one after ``--from``."""
    if not plain:
        ask.problem = ask.problem or "uvx names no tool"
        return
    tool = plain[0]
    name, at, version = tool.partition("@")
    if at:
        tool = f"{name}=={version}"
    if not ask.command:
        ask.wants.insert(0, tool)
    known = NAME.match(tool)
    ask.command = [known.group(1) if known else name, *plain[1:]]


def _run(plain: list[str], ask: Ask) -> None:
    if not plain:
        ask.problem = ask.problem or "uv run names no command"
    elif plain[0].endswith(".py") or plain[0] == "-":
        ask.problem = ask.problem or "what a script itself asks for is not read"
    elif not re.match(r"(?:python[0-9.]*|sh|bash)$", Path(plain[0]).name):
        ask.wants.append(plain[0])
    ask.command = plain


# ------------------------------------------------------------------------------------------------ versions


def release(text: str) -> tuple[int, ...]:
    """Numbers of a plain version, trailing zeros left out.

    Raises:
        ValueError: it is more than numbers and dots.
    """
    if not VERSION.match(text):
        raise ValueError(text)
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def meets(version: str, specifier: str) -> bool:
    """Whether a version is one that a specifier allows; False where either is more than plain numbers."""
    try:
        return all(_meets_one(version, one.strip()) for one in specifier.split(",") if one.strip())
    except ValueError:
        return False


def _meets_one(version: str, one: str) -> bool:
    operator = next(op for op in ("===", "==", "!=", ">=", "<=", "~=", ">", "<", "") if one.startswith(op))
    wanted = one[len(operator) :].strip()
    if wanted.endswith(".*") and operator in ("==", "!="):
        numbers = [int(part) for part in wanted[:-2].split(".")]
        have = [int(part) for part in version.split(".")]
        have += [0] * (len(numbers) - len(have))
        return (have[: len(numbers)] == numbers) is (operator == "==")
    mine, other = release(version), release(wanted)
    if operator == "~=":
        prefix = [int(part) for part in wanted.split(".")][:-1]
        have = [*mine, *([0] * len(prefix))]
        return bool(prefix) and mine >= other and have[: len(prefix)] == prefix
    return {"==": mine == other, "===": version == wanted, "!=": mine != other, ">=": mine >= other}.get(
        operator, {"<=": mine <= other, ">": mine > other, "<": mine < other}.get(operator, False)
    )


def plain_name(name: str) -> str:
    """The normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


# ------------------------------------------------------------------------------------------------ as a program


def _main(program: str, words: list[str]) -> int:
    ask = parse(program, words)
    if ask.verb == "version":
        sys.stdout.write("uv (what stands in for it)\n")
        return 0
    packages = _packages()
    missing = [] if ask.problem else _missing(ask, packages)
    if ask.problem or missing:
        return _say(f"uv: not there, and nothing is fetched here: {ask.problem or ' '.join(missing)}", 2)
    work = {"run": _do_run, "pip install": _do_install, "add": _do_add, "venv": _do_venv, "init": _do_init}
    return work[ask.verb](ask)


def _say(text: str, code: int) -> int:
    sys.stderr.write(text + "\n")
    return code


def _packages() -> dict[str, str]:
    place = Path(__file__).resolve().parents[1] / "uv"
    pairs = (line.split() for line in place.read_text().splitlines())
    return {name: version for name, version in pairs}  # noqa: C416 - of two words each


def _missing(ask: Ask, packages: dict[str, str]) -> list[str]:
    wants = list(ask.wants)
    for name in ask.files:
        lines = Path(name).read_text().splitlines()
        wants += [line.split(" #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
    wants += _project_wants() if ask.project else []
    missing = [want for want in wants if not _is_there(want, packages)]
    have = "{}.{}.{}".format(*sys.version_info[:3])
    if ask.python and have.split(".")[: ask.python.count(".") + 1] != ask.python.split("."):
        missing.append("Python " + ask.python)
    return missing


def _is_there(want: str, packages: dict[str, str]) -> bool:
    known = NAME.match(want.strip())
    if known is None:
        return False
    version = packages.get(plain_name(known.group(1)))
    return version is not None and (not known.group(2).strip() or meets(version, known.group(2)))


def _project() -> Path | None:
    """The project file that counts in the working directory."""
    folder = Path.cwd()
    places = (above / "pyproject.toml" for above in (folder, *folder.parents))
    return next((place for place in places if place.is_file()), None)


def _project_wants() -> list[str]:
    place = _project()
    if place is None:
        return []
    try:
        import tomllib
    except ImportError:
        return ["what pyproject.toml asks for"]
    project = tomllib.loads(place.read_text()).get("project", {})
    return [str(want) for want in project.get("dependencies", [])]


_LOAD = """\
import sys
sys.path[:1] = []
from importlib.metadata import entry_points
named = entry_points()
named = named.select(group="console_scripts") if hasattr(named, "select") else named["console_scripts"]
sys.argv[0] = {name!r}
sys.exit(next(one for one in named if one.name == {name!r}).load()())
"""


def _python() -> str:
    own = Path(os.environ.get("VIRTUAL_ENV", "/nowhere"), "bin", "python")
    return str(own) if own.exists() else sys.executable


def _do_run(ask: Ask) -> int:
    name = ask.command[0]
    if Path(name).name.startswith("python"):
        os.execv(_python(), [_python(), *ask.command[1:]])
    if name not in _scripts(None):
        os.execvp(name, ask.command)
    os.execv(_python(), [_python(), "-c", _LOAD.format(name=name), *ask.command[1:]])


def _scripts(packages: set[str] | None) -> dict[str, str]:
    """Name of a program → name of the package that brings it."""
    from importlib.metadata import distributions

    return {
        one.name: plain_name(found.metadata["Name"])
        for found in distributions()
        for one in found.entry_points
        if one.group == "console_scripts" and (packages is None or plain_name(found.metadata["Name"]) in packages)
    }


def _do_install(ask: Ask) -> int:
    """Packages of the base are seen from every environment; their programs are put into the active one."""
    folder = os.environ.get("VIRTUAL_ENV")
    wanted = {plain_name(known.group(1)) for want in ask.wants for known in [NAME.match(want.strip())] if known}
    if folder:
        for name in _scripts(wanted):
            place = Path(folder, "bin", name)
            place.write_text(f"#!{folder}/bin/python\n{_LOAD.format(name=name)}")
            place.chmod(0o755)
    return _say("all packages are there", 0)


def _do_add(ask: Ask) -> int:
    del ask
    if _project() is None:
        return _say("error: No `pyproject.toml` found in current directory or any parent directory", 2)
    return _say("all packages are there", 0)


def _do_venv(ask: Ask) -> int:
    folder = ask.command[0] if ask.command else ".venv"
    words = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", folder]
    return subprocess.call(words)


def _do_init(ask: Ask) -> int:
    place = Path(ask.command[0] if ask.command else ".", "pyproject.toml").resolve()
    if place.exists():
        return _say(f"error: Project is already initialized in `{place.parent}`", 2)
    place.parent.mkdir(parents=True, exist_ok=True)
    name = place.parent.name or "project"
    place.write_text(f'[project]\nname = "{name}"\nversion = "0.1.0"\nrequires-python = ">=3.8"\ndependencies = []\n')
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[0]).name, sys.argv[1:]))
