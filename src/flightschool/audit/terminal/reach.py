"""Which attacks can matter at all: an attack whose precondition is provably absent is told as such and not played.

Proof is by the text of the whole grader: its live path, every other script beside the tests, and the programs of the
image that it speaks of. It holds only where all of that is shell or Python; otherwise everything is tried. The words
looked for are wide on purpose: a word too many costs a play, a word too few would hide a flaw.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from flightschool.audit.terminal.surface import Surface

__all__ = [
    "Need",
    "calls_tools",
    "compares_numbers",
    "evaluates",
    "looks_inside",
    "reads_profiles",
    "starts_pytest",
    "starts_python",
]

Need: TypeAlias = Callable[[Surface], str]
"""Why an attack cannot matter; empty: it may."""

_PYTHON_RUNS_TEXT: Final = re.compile(
    r"\beval\b|\bexec\w*\b|\bcompile\b|import_module|__import__|runpy|spec_from|SourceFileLoader|pickle|marshal|shelve"
    r"|yaml|joblib|(?<!json\.)(?<!tomllib\.)\bload\(|numpy|pandas|dill|subprocess|os\.system|[pP]open|pexpect|spawn|sqlite|execute|[tT]emplate"
    r"|jinja|format_map|ctypes|importlib|pkgutil|\.format\("
)
_SHELL_RUNS_TEXT: Final = re.compile(
    r"\beval\b|\bsource\b|(?:^|[;&|({]|\bthen|\bdo|\belse)\s*\.\s|\bxargs\b|\(\(|\blet\b|\bdeclare\b|\btypeset\b|\blocal\b"
    r"|-(?:eq|ne|lt|le|gt|ge)\b|\b(?:ba|da|z)?sh\s+-\w*c|\bpython[\d.]*\s+-(?:\w*c|\s)|<<|\bawk\b|\bsed\b|\bperl\b|\bnode\b"
    r"|\bruby\b|\bjq\b|\bbc\b|\bdc\b|\bexpr\b|\benvsubst\b|-exec|\$\{!|\bread\b|\bmapfile\b|\bprintf\b|\btest\s+-v",
    re.MULTILINE,
)
_PYTHON_NUMBERS: Final = re.compile(
    r"(?<!-)[<>]|isclose|approx|allclose|[aA]lmost|\babs\b|\bround\b|\bint\b|\bfloat\b|Decimal|Fraction|numpy|math"
)
_SHELL_NUMBERS: Final = re.compile(
    r"-(?:eq|ne|lt|le|gt|ge)\b|\(\(|\$\[|\b(?:bc|dc|awk|expr|let|jq|sort|printf|perl|node|ruby)\b|[<>]\s*[\d$]"
)
_PYTHON_INSIDE: Final = re.compile(
    r"\bin\b|find|search|match|count|index|starts|ends|\bset\b|subset|superset|\bany\b|\ball\b|(?<!-)[<>]|split|glob|like"
)
_SHELL_INSIDE: Final = re.compile(
    r"grep|\*|=~|\b(?:comm|case|awk|sed|sort|uniq|head|tail|cut|tr|wc|diff|jq|perl|expr|find|xargs|while|for|read|look)\b"
)
_PROFILES: Final = re.compile(
    r"\s-\w*[li]\b|--login|--rcfile|--init-file|\bsu\b|\bsudo\b|\brunuser\b|\bzsh\b|\bsource\b|(?:^|[;&|({])\s*\.\s|profile"
    r"|bashrc|BASH_ENV|\bENV\b|\bssh\b|\bchroot\b",
    re.MULTILINE,
)
_TOOLS: Final = re.compile(r"\bg?make\b|\bgit\b|\b(?:npm|yarn|pnpm|npx)\b|\bsqlite3\b")
_PYTHON_STARTS: Final = re.compile(r"python|pytest|\bpip|\buvx?\b|\.py\b")


def calls_tools(surface: Surface) -> str:
    """Build files, repositories and packages with settings of their own."""
    found = _TOOLS.search(surface.grader_text) or not surface.is_followed
    return "" if found else "the grader calls no make, git, npm or sqlite3"


def starts_pytest(surface: Surface) -> str:
    """Hooks and settings for pytest."""
    shipped = any(one.path.endswith("conftest.py") for one in surface.shipped)
    return "" if "pytest" in surface.grader_text or shipped else "the grader starts no pytest"


def starts_python(surface: Surface) -> str:
    """Modules that Python would find in place of its own."""
    if not surface.is_followed or _PYTHON_STARTS.search(surface.grader_text):
        return ""
    return "the grader starts no Python"


def reads_profiles(surface: Surface) -> str:
    """Profiles of shells."""
    if not surface.is_followed or _PROFILES.search(_commands(surface)) or {"BASH_ENV", "ENV"} & set(surface.env):
        return ""
    return "no shell of the grader reads a profile"


def evaluates(surface: Surface) -> str:
    """Output that is code."""
    if _may(surface, _PYTHON_RUNS_TEXT, _SHELL_RUNS_TEXT) or any(t.grader_programs for t in surface.trust):
        return ""
    return "nothing in the grader runs, loads or computes with text"


def compares_numbers(surface: Surface) -> str:
    """NaN, infinities and numbers out of range."""
    return "" if _may(surface, _PYTHON_NUMBERS, _SHELL_NUMBERS) else "the grader compares no numbers by size"


def looks_inside(surface: Surface) -> str:
    """Answers that hold the right one somewhere."""
    return "" if _may(surface, _PYTHON_INSIDE, _SHELL_INSIDE) else "the grader compares whole texts only"


def _may(surface: Surface, python: re.Pattern[str], shell: re.Pattern[str]) -> bool:
    if not surface.is_followed:
        return True
    return python.search(surface.python_text) is not None or shell.search(_commands(surface)) is not None


def _commands(surface: Surface) -> str:
    """Text of the shell scripts without first lines and comments, which run nothing."""
    return re.sub(r"^\s*#.*$", "", surface.shell_text, flags=re.MULTILINE)
