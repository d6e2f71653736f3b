"""The trust map of a case: reads, imports, programs and verdicts gathered from its live path."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from flightschool.audit.terminal.static.case import Case, verdict_path
from flightschool.audit.terminal.static.comparisons import Comparison
from flightschool.audit.terminal.static.expected import shell_literals
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.trust_map import GraderProgram, GraderRead, TrustMap, VerdictWrite

__all__ = ["map_trust"]

_BUILTINS: Final = frozenset(
    [
        ".",
        ":",
        "[",
        "[[",
        "alias",
        "bg",
        "break",
        "builtin",
        "case",
        "cd",
        "command",
        "continue",
        "declare",
        "do",
        "done",
        "echo",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "if",
        "let",
        "local",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
        "mapfile",
        "readarray",
        "jobs",
        "kill",
        "disown",
    ]
)
ItemT = TypeVar("ItemT")


def map_trust(case: Case, comparisons: Iterable[Comparison]) -> TrustMap:
    """Everything that the grader of a stage relies on."""
    decisive = {id(run) for run in case.decisive()}
    reads = _merged([*_shell_reads(case), *_python_reads(case, list(comparisons))])
    view = case.view
    asked = [read.path for read in reads if read.of_agent]
    inputs = [path for path in asked if path in view.files or any(f.startswith(path + "/") for f in view.files)]
    outputs = [
        path
        for path in [*asked, *_spoken_paths(case)]
        if path not in inputs and path not in view.folders and path not in view.files
    ]
    verdicts = [path for run in case.runs if (path := verdict_path(run))]
    sources = [path for run in case.verdict_runs() for path in _copied_from(run) if case.of_agent(path)]
    user = view.user.partition(":")[0] or "root"
    plan = case.folder.plan
    return TrustMap(
        stage=case.stage.name,
        grader_commands=_unique(_commands(case)),
        grader_files=tuple(case.live.files),
        grader_reads=reads,
        grader_imports=_unique(case.live.imports),
        grader_programs=_unique(
            [msgspec.structs.replace(p, decides=id(run) in decisive) for p, run in case.live.programs]
            + list(_python_programs(case))
        ),
        verdict_paths=_unique([*verdicts, *sources]),
        verdict_writes=_unique(_writes(case)),
        output_paths=_unique(outputs),
        input_paths=_unique(inputs),
        python_entries=_unique(case.live.entries),
        agent_user=user,
        agent_writable=_unique(view.writable),
        workdir=case.task.workdir or (plan.workdir if plan is not None else "/"),
        agent_files=tuple(view.files)[:5000],
        ports=_unique(_ports(case)),
    )


def _unique(items: Iterable[ItemT]) -> tuple[ItemT, ...]:
    return tuple(dict.fromkeys(items))


def _commands(case: Case) -> Iterator[str]:
    for run in case.runs:
        word = run.argv[0] if run.argv else ""
        if word and "/" not in word and "$" not in word and word not in _BUILTINS and "=" not in word:
            yield word
    for live in case.live.python:
        for _, program in _programs_run(live):
            if program and "/" not in program and "$" not in program:
                yield program


def _programs_run(live: LivePython) -> Iterator[tuple[ast.Call, str]]:
    for call in live.code.nodes(ast.Call):
        effect = live.flow.effect(call, live.code.full_name(call))
        if effect is not None and effect[0] == "program":
            argv = live.flow.argv(call)
            yield call, argv[0] if argv else ""


def _python_programs(case: Case) -> Iterator[GraderProgram]:
    for live in case.live.python:
        for call, first in _programs_run(live):
            path = live.flow.program(call)
            if path.startswith("/") and case.of_agent(path):
                yield GraderProgram(
                    path=path,
                    where=live.code.where(call),
                    interpreter="" if first == path else posixpath.basename(first),
                    reads_stdout=not live.code.full_name(call).endswith(("call", "check_call", "system")),
                )


def _shell_reads(case: Case) -> Iterator[GraderRead]:
    for run in case.runs:
        argv, program = run.argv, run.program
        if program in ("echo", "printf", "mkdir", "cd", "chmod", "rm", "export", "set", "trap", "") or verdict_path(
            run
        ):
            continue
        how = "exists" if program in ("[", "[[", "test", "stat") else "list" if program in ("ls", "find") else "program"
        literals = _literals_for(case, run)
        for word in argv[1:]:
            path = run.path(word) if "/" in word and not word.startswith("-") and " " not in word else ""
            if program in ("cat", "diff", "cmp", "grep", "wc", "head", "tail", "jq") and not path:
                path = run.path(word) if "." in word and word[:1] not in "-$.'" and len(word) < 100 else ""
            if path and not path.startswith(("/dev", "/proc", "/logs/verifier")):
                yield GraderRead(path=path, where=run.where, how=how, literals=literals, of_agent=case.of_agent(path))
        for path in run.reads:
            if not path.startswith("/dev"):
                yield GraderRead(
                    path=path, where=run.where, literals=literals, how="program", of_agent=case.of_agent(path)
                )


def _literals_for(case: Case, run: Run) -> tuple[str, ...]:
    own = shell_literals(run)
    if own or run.program in ("[", "[[", "test"):
        return own
    for other in case.runs:
        if other.program in ("[", "[[", "test") and any(base is run for base in other.basis()):
            return shell_literals(other)
    return ()


def _python_reads(case: Case, comparisons: list[Comparison]) -> Iterator[GraderRead]:
    tied: dict[str, list[str]] = {}
    for comparison in comparisons:
        for kind, detail in comparison.origins:
            if kind in ("file", "list"):
                tied.setdefault(detail, []).extend(str(literal) for literal in comparison.literals)
    for live in case.live.python:
        for call in live.code.nodes(ast.Call):
            effect = live.flow.effect(call, live.code.full_name(call))
            if effect is None or effect[0] not in ("file", "path", "list"):
                continue
            if effect[1].startswith(("/dev", "/proc", "/logs/verifier")) or effect[1] == live.code.path:
                continue
            yield GraderRead(
                path=effect[1],
                where=live.code.where(call),
                how=live.flow.how(call),
                literals=tuple(dict.fromkeys(tied.get(effect[1], ())))[:100],
                of_agent=case.of_agent(effect[1]),
            )


def _merged(reads: Iterable[GraderRead]) -> tuple[GraderRead, ...]:
    """One read for each path and manner; literals joined."""
    found: dict[tuple[str, str], GraderRead] = {}
    for read in reads:
        key = (read.path, read.how)
        old = found.get(key)
        literals = tuple(dict.fromkeys((*(old.literals if old else ()), *read.literals)))
        found[key] = msgspec.structs.replace(old or read, literals=literals)
    return tuple(found.values())


def _spoken_paths(case: Case) -> Iterator[str]:
    """Absolute paths, and paths below the working directory with an ending, that the instruction names."""
    plan = case.folder.plan
    cwd = case.task.workdir or (plan.workdir if plan is not None else "/")
    for raw in case.instruction.split():
        word = raw.strip("'\"`()[]<>,;:*.!?")
        if not 1 < len(word) < 200 or "://" in word:
            continue
        if word.startswith("/") and word.count("/") >= 1 and len(word) > 2:
            yield posixpath.normpath(word)
        elif "/" in word and "." in posixpath.basename(word) and word[0].isalnum():
            yield posixpath.normpath(posixpath.join(cwd, word))


def _copied_from(run: Run) -> list[str]:
    """Files that a command takes its output from."""
    found = [path for base in run.basis() for path in base.reads]
    for base in run.basis():
        if base.program in ("cp", "mv", "cat", "head", "tail", "jq", "tee", "ln"):
            words = [word for word in base.argv[1:] if not word.startswith("-")]
            words = words[:-1] if base.program in ("cp", "mv", "ln") else words
            found += [base.path(word) for word in words if word and word[0] not in "$'"]
    return [path for path in found if path]


def _writes(case: Case) -> Iterator[VerdictWrite]:
    for run in case.verdict_runs():
        argv = run.argv
        text = " ".join(argv[1:]) if run.program in ("echo", "printf") else ""
        guarded = any(guard.kind != "loop" for guard in run.guards)
        yield VerdictWrite(
            path=verdict_path(run), where=run.where, value="" if "$" in text else text.strip(), conditional=guarded
        )
    for live in case.live.python:
        for call in live.code.nodes(ast.Call):
            path = live.flow.writes_to(call)
            if path.startswith("/logs/verifier/"):
                conditional = any(isinstance(above, ast.If | ast.Try | ast.IfExp) for above in live.code.above(call))
                yield VerdictWrite(path=path, where=live.code.where(call), conditional=conditional)


def _ports(case: Case) -> Iterator[int]:
    words = [word for run in case.runs for word in run.words]
    words += [
        str(v.value) for live in case.live.python for v in live.code.nodes(ast.Constant) if isinstance(v.value, str)
    ]
    for word in words:
        for host in ("localhost:", "127.0.0.1:", "0.0.0.0:"):
            _, found, rest = word.partition(host)
            digits = rest[:5]
            number = "".join(char for char in digits if char.isdigit())
            if found and number and digits.startswith(number):
                yield int(number)
