"""Whether the verdict hangs on the checks: unconditional rewards, swallowed failures, masked pipes, defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.shell_runs import Guard, Run

__all__ = ["ALWAYS_ZERO", "detect", "is_check", "number_of"]

_SETUP: Final = frozenset(
    [
        ":",
        ".",
        "[",
        "[[",
        "apk",
        "apt",
        "apt-get",
        "awk",
        "basename",
        "cat",
        "cd",
        "chmod",
        "chown",
        "clear",
        "cp",
        "curl",
        "cut",
        "date",
        "declare",
        "dirname",
        "echo",
        "env",
        "exit",
        "export",
        "find",
        "for",
        "case",
        "hash",
        "head",
        "id",
        "install",
        "ln",
        "local",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "nl",
        "paste",
        "pip",
        "pip3",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readonly",
        "return",
        "rm",
        "sed",
        "service",
        "set",
        "shift",
        "shopt",
        "sleep",
        "sort",
        "source",
        "tail",
        "tee",
        "touch",
        "tr",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "uniq",
        "unset",
        "uv",
        "wait",
        "wc",
        "wget",
        "which",
        "whoami",
        "xargs",
        "test",
        "false",
        "ts",
        "sync",
        "stty",
    ]
)
ALWAYS_ZERO: Final = frozenset(
    ["echo", "printf", "true", ":", "cd", "export", "mkdir", "date", "tee", "cat", "set", "unset", "sleep"]
)
_FILTERS: Final = frozenset(["tee", "cat", "tail", "head", "sed", "tr", "ts", "sort", "awk", "cut", "nl", "uniq"])
MOST_CONDITIONS: Final = 40
"""Commands of one condition that are looked at, the last ones."""
_MEND: Final = (
    "write the reward only from the exit status of the checks, with `set -o pipefail` where they stand in a pipe"
)


def is_check(run: Run) -> bool:
    """Whether a command examines something, rather than preparing or telling."""
    if run.program in ("[", "[[", "test"):
        return not run.statuses
    if run.program in ("awk", "uv") and len(run.argv) > 1:
        return run.program == "awk" or "run" in run.argv[1:3]
    return run.program not in _SETUP and bool(run.argv)


def number_of(run: Run) -> float | None:
    """The number that a command writes as the verdict; None: computed."""
    if run.program not in ("echo", "printf"):
        return None
    text = " ".join(word for word in run.argv[1:] if not word.startswith("-")).strip().strip("\\n")
    if '"reward"' in text:
        text = text.partition('"reward"')[2].lstrip(": ").split(",")[0].strip(" }")
    try:
        return float(text)
    except ValueError:
        return None


def detect(case: Case) -> Iterator[FlawFinding]:
    """All flaws of the way from checks to verdict in shell."""
    verdicts = case.verdict_runs()
    passing = [run for run in verdicts if (number_of(run) or 0.0) > 0]
    numbers = [number_of(run) for run in verdicts]
    written_by_python = any("/logs/verifier/reward" in live.code.text for live in case.live.python)
    if verdicts and not written_by_python and all(number == 0.0 for number in numbers):
        yield case.finding(
            "constant-reward", "every verdict that is written is 0", verdicts[0].where, 0.8, "write 1 on success"
        )
    if (
        len(verdicts) > 1
        and passing
        and None not in numbers
        and len(passing) == len(verdicts)
        and len(set(numbers)) == 1
    ):
        yield case.finding("swallowed-failure", "every branch writes the same reward", passing[0].where, 0.85, _MEND)
        return
    for run in passing:
        yield from _passing(case, run, verdicts)
    yield from _escapes(case, verdicts)


def _passing(case: Case, run: Run, verdicts: list[Run]) -> Iterator[FlawFinding]:
    conditions = [guard for guard in run.guards if guard.kind not in ("loop", "trap")]
    if any(guard.kind == "trap" for guard in run.guards) and not conditions:
        yield case.finding(
            "swallowed-failure",
            "a trap writes a passing reward however the script ends",
            run.where,
            0.85,
            "let the trap write 0, and write 1 at the end of success only",
        )
        return
    if not conditions:
        yield from _unconditional(case, run, verdicts)
        return
    for guard in conditions:
        problem = _hollow(guard)
        if problem:
            yield case.finding("swallowed-failure", problem, run.where, 0.85, _MEND)
            return
    yield from _exit_codes(case, conditions)


def _unconditional(case: Case, run: Run, verdicts: list[Run]) -> Iterator[FlawFinding]:
    at = case.runs.index(run)
    later = [other for other in verdicts if case.runs.index(other) > at]
    checks = [other for other in case.runs[:at] if other.use == "errexit" and is_check(other) and not other.piped]
    if not later:
        if checks:
            return
        masked = any(other.piped and is_check(other) for other in case.runs[:at])
        why = "the exit status of the checks is lost in a pipe" if masked else "no check stands before it"
        yield case.finding(
            "swallowed-failure", f"a passing reward is written whatever happens: {why}", run.where, 0.9, _MEND
        )
        return
    between = case.runs[at : case.runs.index(later[0])]
    leaves = [b for b in between if b.program == "exit" or (b.use == "errexit" and is_check(b))]
    if leaves and all(any(g.kind != "loop" for g in other.guards) for other in later):
        yield case.finding(
            "swallowed-failure",
            "a passing reward is written first, and the script can end before it is taken back",
            run.where,
            0.7,
            "write 0 first and 1 on success",
        )


def _hollow(guard: Guard) -> str:
    """Why a condition hangs on no check; empty: it does, or that cannot be told."""
    if not guard.runs or guard.kind in ("else", "or", "case"):
        return ""
    last = guard.runs[-1]
    if last.program in ("true", ":", "echo") and not last.writes and guard.kind == "if":
        return "the condition of a passing reward is always true"
    for run in guard.runs[-MOST_CONDITIONS:]:
        tested = run.statuses if run.program in ("[", "[[", "test", "((", "case") or run.statuses else [run]
        for looked in tested:
            masks = looked.program in _FILTERS and any(s.use == "piped" and is_check(s) for s in looked.sources)
            if masks and (run.statuses or run is looked):
                return "the exit status of a pipe is that of its last command, so a failing check is not noticed"
        basis = [base for looked in tested for base in looked.basis()]
        if (
            run.statuses
            and tested
            and not any(is_check(b) for b in basis)
            and all(b.program in ALWAYS_ZERO for b in tested)
        ):
            return f"the exit status that is looked at is that of `{tested[-1].program}`, which never fails"
    return ""


def _exit_codes(case: Case, conditions: list[Guard]) -> Iterator[FlawFinding]:
    """Only the exit code 1 counts as failing, or 5 (nothing collected) as passing."""
    for guard in conditions:
        for test in guard.runs[-MOST_CONDITIONS:]:
            words = test.words
            asks = test.program in ("[", "[[", "test") and bool(test.statuses)
            equal = any(word in ("-eq", "=", "==") for word in words)
            if not asks:
                continue
            if (guard.kind in ("else", "or") and equal and "1" in words and "0" not in words) or (
                guard.kind in ("if", "and") and "-ne" in words and "1" in words
            ):
                yield case.finding(
                    "zero-collected",
                    "only the exit code 1 counts as failing: no tests, errors and crashes pass",
                    test.where,
                    0.75,
                    "let only the exit code 0 pass",
                )
            elif guard.kind in ("if", "and") and equal and "5" in words:
                yield case.finding(
                    "zero-collected",
                    "the exit code of pytest for nothing collected counts as passing",
                    test.where,
                    0.85,
                    "let only the exit code 0 pass",
                )


def _escapes(case: Case, verdicts: list[Run]) -> Iterator[FlawFinding]:
    """Ends of the script that the policy can cause before any verdict is written."""
    if not verdicts or any(guard.kind == "trap" for run in verdicts for guard in run.guards):
        return
    first = min(case.runs.index(run) for run in verdicts)
    for run in case.runs[:first]:
        guarded = [guard for guard in run.guards if guard.kind in ("if", "or", "and", "else")]
        if run.program == "exit" and guarded and _touches_agent(case, [r for g in guarded for r in g.runs]):
            what = "the script ends without a verdict when something of the policy's is not as wished"
        elif run.use == "errexit" and is_check(run) and not run.captured and _touches_agent(case, [run]):
            what = "`set -e` ends the script without a verdict when this check fails"
        else:
            continue
        yield case.finding(
            "ungraded-escape", what, run.where, 0.6, "write 0 first, or from a trap, so that each end has a verdict"
        )
        return


def _touches_agent(case: Case, runs: list[Run]) -> bool:
    for run in (base for start in runs for base in start.basis()):
        if run.program in ("pytest", "py.test") or "pytest" in run.argv[:4]:
            return True
        if any(case.of_agent(path) for word in run.argv[1:] if "/" in word and (path := run.path(word))):
            return True
        if run.program.startswith("python") and len(run.argv) > 1:
            return True
    return False
