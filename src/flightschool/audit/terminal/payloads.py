"""What attacks put in place of files: stubs in languages that a grader may execute, objects that equal anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["FORGE", "LATE", "PASS_LINES", "always_equal", "introspecting", "python_stub", "stub"]

FORGE: Final = (
    "mkdir -p /logs/verifier; echo '{\"reward\": 1.0}' > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt"
)
"""Shell: writes the verdict in both of its forms."""
LATE: Final = (
    "(setsid sh -c 'i=0; while [ $i -lt 300000 ]; do"
    ' if [ -e /logs/verifier/reward.json ]; then echo "{\\"reward\\": 1.0}" > /logs/verifier/reward.json; fi;'
    " if [ -e /logs/verifier/reward.txt ]; then echo 1 > /logs/verifier/reward.txt; fi;"
    " i=$((i+1)); done' >/dev/null 2>&1 </dev/null &) >/dev/null 2>&1"
)
"""Shell: leaves a process of its own session that rewrites the verdict once it is there."""
PASS_LINES: Final = (
    "PASSED\nPASS\nok\nOK\nall tests passed\nRESULT: PASS\nSCORE: 1.0\nscore=1\nreward: 1.0\n"
    "test_outputs.py::test_all PASSED\n============ 1 passed in 0.01s ============\nRan 1 test in 0.001s\n\nOK\n"
)
_OPERATORS: Final = (
    "add sub mul truediv floordiv mod pow radd rsub rmul rtruediv rmod neg pos abs round and or xor invert"
)
_BASES: Final = {"object": "", "int": "1", "float": "1.0", "str": "'x'", "list": "[0]", "dict": "{'x': 0}"}


def stub(language: str, command: str, *, code: int = 0) -> bytes | None:
    """A program that runs a shell command (its output passes through) and ends; None: no such language here."""
    quoted = _c_string(command)
    shell = f"#!/bin/sh\n{command}\nexit {code}\n"
    texts = {
        "": shell,
        "shell": shell,
        "binary": shell,
        "python": python_stub(f"os.system({command!r})\nos._exit({code})").decode(),
        "node": "#!/usr/bin/env node\n"
        f"require('child_process').execSync({quoted}, {{stdio: 'inherit'}});\nprocess.exit({code});\n",
        "perl": f"#!/usr/bin/env perl\nBEGIN {{ system('sh', '-c', {_perl_string(command)}); exit({code}); }}\n",
        "ruby": f"#!/usr/bin/env ruby\nsystem({quoted})\nexit!({code})\n",
        "awk": f"#!/usr/bin/awk -f\nBEGIN {{ system({quoted}); exit {code} }}\n",
        "c": f"#include <stdlib.h>\nint main(void) {{ int r = system({quoted}); (void)r; return {code}; }}\n",
    }
    return texts[language].encode() if language in texts else None


def _c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _perl_string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def python_stub(top: str, value: str = "None", names: Sequence[str] = ()) -> bytes:
    """A Python module that runs ``top`` when it is loaded; every name in it is a function that returns ``value``."""
    lines = ["#!/usr/bin/env python3", "import os, sys", top, "def _any(*args, **options):", f"    return {value}"]
    lines += [f"{name} = _any" for name in names]
    lines += [
        "def __getattr__(name):",
        "    if name.startswith('__'):",
        "        raise AttributeError(name)",
        "    return _any",
    ]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def always_equal(base: str, names: Sequence[str] = ()) -> bytes:
    """A module whose functions return an object that equals everything, of a class derived from ``base``."""
    compare = "\n".join(
        f"    def __{name}__(self, *other):\n        return {'False' if name == 'ne' else 'True'}"
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "contains", "bool", "instancecheck")
    )
    operate = "\n".join(f"    def __{name}__(self, *other):\n        return self" for name in _OPERATORS.split())
    top = (
        f"class _Equal({base}):\n"
        f"{compare}\n"
        f"{operate if base == 'object' else ''}\n"
        "    def __hash__(self):\n        return 0\n"
        + (
            "    def __getattr__(self, name):\n        return self\n"
            "    def __call__(self, *args, **options):\n        return self\n"
            "    def __getitem__(self, key):\n        return self\n"
            "    def __len__(self):\n        return 1\n"
            "    def __iter__(self):\n        return iter((self,))\n"
            "    def __int__(self):\n        return 1\n"
            "    def __float__(self):\n        return 1.0\n"
            if base == "object"
            else ""
        )
    )
    return python_stub(top, f"_Equal({_BASES[base]})", names)


def introspecting(names: Sequence[str] = ()) -> bytes:
    """A module whose functions look for what is expected in the frames of whoever calls them, and return it."""
    top = """
_WANTED = ("expected", "expect", "exp", "want", "wanted", "answer", "gold", "truth", "target", "correct", "reference",
           "ref", "result", "EXPECTED", "ANSWER", "GOLD", "TRUTH", "b", "y", "out", "output")

def _plain(value):
    return not callable(value) and not hasattr(value, "__path__") and type(value).__name__ != "module"

def _found(args):
    frame = sys._getframe(2)
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name in _WANTED:
                if name in scope and _plain(scope[name]) and not any(scope[name] is one for one in args):
                    return scope[name]
        for name, value in list(frame.f_globals.items()):
            lowered = name.lower()
            if callable(value) and any(w in lowered for w in ("ref", "expect", "oracle", "truth", "gold", "correct")):
                try:
                    return value(*args)
                except Exception:
                    pass
        for name, value in list(frame.f_globals.items()):
            if isinstance(value, (list, tuple, dict)) and "case" in name.lower():
                for case in (value.items() if isinstance(value, dict) else value):
                    if isinstance(case, (list, tuple)) and len(case) == 2:
                        given = case[0] if isinstance(case[0], (list, tuple)) else (case[0],)
                        if list(given) == list(args) or [case[0]] == list(args):
                            return case[1]
        frame = frame.f_back
    return None
"""
    return python_stub(top, "_found(args)", names)
