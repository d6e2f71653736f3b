"""Worlds that run a team's own tool code on a fresh copy of the initial state.

The code is a module (dotted name, or the path of a ``.py`` file) with either ``build_environment(**options)``, which
gives a whole environment, or plain functions ``tool(state, **arguments) -> value``, named like the tools or listed in
``TOOLS``. Where only some tools have a function, the others stand on
lower rungs (``ladder``). An exception of a function is an error of the domain: the policy sees its text.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import shlex
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flightschool.environments.coded import ToolFunction, call_function
from flightschool.environments.json_state import JsonBase, JsonTables
from flightschool.environments.recorded import DECLINE, decline_reply
from flightschool.errors import ConfigError
from flightschool.protocols import WorldReply
from flightschool.records import ToolCall

__all__ = ["CodeWorld", "ToolFunction", "load_code", "source_digest", "tool_functions"]

_TYPO = 0.8
"""How alike two names must be for one to be taken for a slip of the other."""


def load_code(code: str, *, where: str = "") -> ModuleType:
    """Import a module by dotted name, or from the path of a ``.py`` file (anything with ``/``, or ending ``.py``).

    Args:
        code: the name or path.
        where: how the user named it, for errors; by default the option ``--code``.

    Raises:
        ConfigError: the module does not exist or fails while it is imported.
    """
    is_path = "/" in code or code.endswith(".py")
    where = where or f"--code {code}"
    try:
        return _from_path(Path(code), where) if is_path else importlib.import_module(code)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if not is_path and (code == missing or code.startswith(missing + ".")):
            raise ConfigError(
                f"there is no module {code!r}",
                where=where,
                expected="an installed module, or the path of a .py file",
                mend="install it, or write the path with a slash: ./tools.py",
            ) from error
        raise _broken_import(code, where, error) from error
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends when it is run is no module of tools
        raise _broken_import(code, where, error) from error


def _broken_import(code: str, where: str, error: BaseException) -> ConfigError:
    is_path = "/" in code or code.endswith(".py")
    words = ["import runpy, sys; runpy.run_path(sys.argv[1])", code] if is_path else [f"import {code}"]
    return ConfigError(
        f"the module cannot be imported: {type(error).__name__}: {error}",
        where=where,
        expected="a module that imports without errors",
        mend=f"run: {shlex.join(['python', '-c', *words])} and mend what it says",
    )


def _from_path(path: Path, where: str) -> ModuleType:
    if not path.is_file():
        raise ConfigError("there is no such file", where=where, expected="a .py file", mend="check the path")
    name = "flightschool_code_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("this is no Python file", where=where, expected="a .py file", mend="rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the module look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def source_digest(module: ModuleType) -> str:
    """Digest of the module's source file; of its name if it has none. Modules that it imports are not covered."""
    file = getattr(module, "__file__", None)
    data = Path(file).read_bytes() if file else module.__name__.encode()
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tool_functions(
    module: ModuleType, recorded: Collection[str], where: str, *, some: bool = False
) -> dict[str, ToolFunction]:
    """The module's tools: its ``TOOLS``, else its functions named like the recorded tools.

    Args:
        module: the code.
        recorded: names of the tools that need a function.
        where: for errors.
        some: whether it is enough that one of them has a function; a function named nearly like one that has none is
            still taken for a slip.

    Raises:
        ConfigError: ``TOOLS`` is no mapping of functions, or recorded tools have no function.
    """
    listed = getattr(module, "TOOLS", None)
    found: Mapping[str, Any] = (
        listed if listed is not None else {n: f for n, f in vars(module).items() if n in recorded}
    )
    if not isinstance(found, Mapping) or not all(isinstance(n, str) and callable(f) for n, f in found.items()):
        raise ConfigError("TOOLS is no mapping of names to functions", where=where, expected="dict", mend="correct it")
    waiting = [name for name, function in found.items() if inspect.iscoroutinefunction(function)]
    if waiting:
        raise ConfigError(
            f"{waiting[0]!r} is a coroutine function",
            where=where,
            expected="plain functions",
            mend="make it a plain one",
        )
    missing = [name for name in recorded if name not in found]
    own = [name for name, value in vars(module).items() if callable(value) and name not in recorded and name[0] != "_"]
    near = {name: like[0] for name in missing if (like := difflib.get_close_matches(name, own, n=1, cutoff=_TYPO))}
    if missing and (not some or len(missing) == len(recorded) or (listed is None and near)):
        hint = next((f"is {like!r} the function of {name!r}? " for name, like in near.items()), "")
        raise ConfigError(
            f"{len(missing)} recorded tools have no function: {', '.join(sorted(missing))}",
            where=where,
            expected="a function tool(state, **arguments) for each recorded tool, or build_environment(**options)",
            mend=hint + "add the functions, or map names in TOOLS = {tool name: function}",
        )
    return dict(found)


class CodeWorld:
    """One attempt's own state with the tool functions that act on it (``protocols.World``).

    Args:
        functions: tool → function.
        tables: the state; a world of its own takes ``base.open()``.
        declines: whether this world answers ``decline`` itself.
    """

    def __init__(self, functions: Mapping[str, ToolFunction], tables: JsonTables, *, declines: bool = False) -> None:
        self._functions = functions
        self._tables = tables
        self._declines = declines and DECLINE.name not in functions

    @classmethod
    def fresh(cls, functions: Mapping[str, ToolFunction], base: JsonBase, *, declines: bool = False) -> CodeWorld:
        """A world in the initial state."""
        return cls(functions, base.open(), declines=declines)

    def execute(self, call: ToolCall) -> WorldReply:
        """Run the tool's function. What it raises is the domain's answer; state it changed before stays changed."""
        if self._declines and call.name == DECLINE.name:
            return decline_reply(call)
        function = self._functions.get(call.name)
        if function is None:
            return WorldReply(value={"error": f"no tool {call.name}"}, is_error=True)
        answer = call_function(function, self._tables, call)
        return WorldReply(value=answer.value, is_error=answer.is_error)

    def snapshot(self) -> bytes:
        """All tables as canonical JSON."""
        return self._tables.snapshot()

    def fork(self) -> CodeWorld:
        """An independent copy of the present state."""
        return CodeWorld(self._functions, self._tables.fork(), declines=self._declines)

    def close(self) -> None:
        """Nothing to let go: the state is freed with the world."""
