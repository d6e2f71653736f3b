"""Rewrites of a test script: lost exit statuses, ends without a verdict, unpinned starts of Python."""

from __future__ import annotations

import re
from typing import Final

from flightschool.audit.terminal.mends.draft import Draft
from flightschool.audit.terminal.mends.records import AppliedMend
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.detectors.verdict_flow import is_check, number_of
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["end_with_verdict", "pin_starts", "propagate_status"]

FAILED: Final = "checks_failed"
_SPANNING: Final = ("\\\n", "<<", "{", "}", "&&")
_KEYWORDS: Final = frozenset(
    ["if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"]
)


def _script(case: Case) -> str:
    return case.tests.places.get(case.stage.test_command[-1], "") if case.stage.test_command else ""


def _is_simple(lines: list[str], number: int) -> bool:
    """Whether a line is one whole statement."""
    if not 0 < number <= len(lines):
        return False
    line = lines[number - 1]
    before = lines[number - 2] if number > 1 else ""
    quotes = line.count('"') % 2 or line.count("'") % 2
    spans = any(text in line for text in _SPANNING) or bool(_KEYWORDS & set(line.replace(";", " ").split()))
    return not quotes and not before.endswith("\\\n") and not spans


def propagate_status(draft: Draft) -> list[AppliedMend]:
    """Note each failing check, and write a passing reward only when none failed."""
    applied: list[AppliedMend] = []
    for case in draft.cases:
        script = _script(case)
        wanted = [
            f
            for f in draft.findings
            if f.flaw in ("swallowed-failure", "early-exit") and f.where.startswith(script + ":")
        ]
        if not script or not any(f.flaw == "swallowed-failure" for f in wanted):
            continue
        lines = draft.lines(script)
        checks = [
            r for r in case.runs if r.file == script and is_check(r) and not r.captured and _is_simple(lines, r.line)
        ]
        checks = [r for r in checks if not r.guards or all(g.kind in ("or", "and") for g in r.guards)]
        passing = [
            r for r in case.verdict_runs() if (number_of(r) or 0) > 0 and r.file == script and r.program == "echo"
        ]
        if not checks or not passing or any(guard.kind == "trap" for run in passing for guard in run.guards):
            continue
        before = list(lines)
        for number in sorted({run.line for run in checks}):
            lines[number - 1] = _noted(lines[number - 1])
        replaced = [_conditional(lines, run) for run in passing]
        if not all(replaced):
            continue
        _head(lines, f"set -o pipefail\n{FAILED}=0\n" if _is_bash(case) else f"{FAILED}=0\n")
        if lines != before:
            draft.write(script, "".join(lines))
            what = "a failing check is noted, pipes included, and 1 is written only when none failed"
            applied.append(AppliedMend(rule="propagate-status", flaws=("swallowed-failure",), file=script, what=what))
    return applied


def _is_bash(case: Case) -> bool:
    return "bash" in " ".join(case.stage.test_command[:-1])


def _noted(line: str) -> str:
    body, end = line.rstrip("\n"), "\n" if line.endswith("\n") else ""
    indent = body[: len(body) - len(body.lstrip())]
    body = body.strip()
    for tail in ("|| true", "||true", "|| :"):
        body = body.removesuffix(tail).rstrip()
    return f"{indent}{{ {body.rstrip(';')}; }} || {FAILED}=1{end}"


def _conditional(lines: list[str], run: Run) -> bool:
    """Make an ``echo 1 > reward`` hang on the noted failures. The text of the command must stand on its line once."""
    if not 0 < run.line <= len(lines):
        return False
    line = lines[run.line - 1]
    for quoted in ("echo 1", 'echo "1"', "echo '1'", "echo 1.0", 'echo "1.0"'):
        if line.count(quoted) == 1 and not line[line.index(quoted) + len(quoted) :][:1].strip(" >;\n"):
            lines[run.line - 1] = line.replace(quoted, f"echo $(({FAILED} == 0))")
            return True
    return False


def _head(lines: list[str], text: str) -> None:
    """Put text behind the ``#!`` line."""
    at = 1 if lines and lines[0].startswith("#!") else 0
    lines[at:at] = text.splitlines(keepends=True)


def end_with_verdict(draft: Draft) -> list[AppliedMend]:
    """Where the policy can end the script before a verdict, write 0 there."""
    applied: list[AppliedMend] = []
    zero = "mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt; exit 1"
    for case in draft.cases:
        script = _script(case)
        numbers = [
            int(f.where.rpartition(":")[2])
            for f in draft.findings
            if f.flaw == "ungraded-escape" and f.where.startswith(script + ":")
        ]
        for number in numbers if script and script not in draft.changed else ():
            lines = draft.lines(script)
            line = lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else ""
            run = next((r for r in case.runs if r.file == script and r.line == number and r.program == "exit"), None)
            if run is not None and line.count("exit") == 1:
                command = " ".join(["exit", *run.words[1:]])
                braced = f"{{ {zero}; }}" if "||" in line or "&&" in line else zero
                lines[number - 1] = line.replace(command, braced) + "\n"
            elif run is None and _is_simple(lines, number) and "||" not in line:
                lines[number - 1] = f"{{ {line.strip().rstrip(';')}; }} || {{ {zero}; }}\n"
            else:
                continue
            draft.write(script, "".join(lines))
            what = "what ended without a verdict is given 0"
            applied.append(AppliedMend(rule="end-with-verdict", flaws=("ungraded-escape",), file=script, what=what))
    return applied


_SYSTEM_FIRST: Final = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH\n"
_OWN_PATH: Final = re.compile(r"(?:export\s+)?PATH=\S+\s*\n")
"""A line that sets the search path and does nothing else: the system's folders come first again behind it."""


def pin_starts(draft: Draft) -> list[AppliedMend]:
    """Fix PATH, keep the working directory out of ``sys.path``, and give pytest its settings."""
    applied: list[AppliedMend] = []
    flaws = ("pytest-hook", "interpreter-startup", "path-trojan")
    for case in draft.cases:
        script = _script(case)
        told = {f.flaw for f in draft.findings if f.flaw in flaws}
        if not script or not told:
            continue
        head = ""
        if "path-trojan" in told:
            head += _SYSTEM_FIRST
        by_folder = any(found.path.rpartition("/")[0] == case.trust.workdir for found in case.live.imports)
        if "interpreter-startup" in told and not by_folder:
            # Read by Python 3.11 and later, ignored by earlier ones.
            head += "export PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1\n"
        lines = draft.lines(script)
        if "pytest-hook" in told:
            _pin_pytest(case, lines, script)
        if "path-trojan" in told:
            lines = [more for line in lines for more in ((line, _SYSTEM_FIRST) if _OWN_PATH.match(line) else (line,))]
        if head:
            _head(lines, head)
        text = "".join(lines)
        if text != draft.text(script):
            draft.write(script, text)
            what = "programs, modules and settings come from the system and the tests only"
            applied.append(AppliedMend(rule="pin-starts", flaws=tuple(sorted(told)), file=script, what=what))
    return applied


def _pin_pytest(case: Case, lines: list[str], script: str) -> None:
    own = any(name.endswith(("/conftest.py", "pytest.ini")) for name in case.tests.places)
    options = "-p no:cacheprovider -c /dev/null --rootdir=/tests" + ("" if own else " --noconftest")
    for entry in case.trust.python_entries:
        file, _, number = entry.where.rpartition(":")
        if entry.runner != "pytest" or file != script or not 0 < int(number) <= len(lines):
            continue
        line = lines[int(number) - 1]
        if line.count("pytest ") == 1 and not {"-c", "--rootdir"} & set(line.split()):
            lines[int(number) - 1] = line.replace("pytest ", f"pytest {options} ")
