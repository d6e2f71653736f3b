"""What the grader expects and the policy should not read: literals, reference files, the solution's outputs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Final

from flightschool.audit.terminal.static.agent_view import content_of
from flightschool.audit.terminal.static.case import Case, Secret, places_of, solution_files
from flightschool.audit.terminal.static.comparisons import Comparison
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.shell_walk import run_shell

__all__ = ["is_distinctive", "secrets_of", "shell_literals", "shingles", "solution_runs"]

MOST_SECRETS: Final = 300
LEAST_CHARACTERS: Final = 6
SHINGLE: Final = 8
"""Words of a shingle."""
MOST_WORDS: Final = 40_000
_WORDS: Final = re.compile(r"\w+")
_NUMBER: Final = re.compile(r"[\s\d.,:;%$€+\-/()\[\]{}\"'eE]*$")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z_]+$")


def is_distinctive(text: str) -> bool:
    """Whether a text says something when it is found elsewhere: no number, no short token, no plain word, no path."""
    stripped = text.strip()
    if len(stripped) < LEAST_CHARACTERS or _NUMBER.match(stripped):
        return False
    if _PLAIN_WORD.match(stripped):
        return len(stripped) >= 20
    if stripped.startswith(("/", "./", "http://", "https://")) and " " not in stripped:
        return False
    if "\n" not in stripped and stripped.endswith((".py", ".txt", ".json", ".csv", ".sh", ".md", ".log")):
        return False
    letters = sum(char.isalnum() for char in stripped)
    return letters >= LEAST_CHARACTERS


def shingles(text: str) -> set[int]:
    """Hashes of all runs of eight words (Broder 1997), of the first 40,000 words."""
    words = _WORDS.findall(text)[:MOST_WORDS]
    return {hash(tuple(words[at : at + SHINGLE])) for at in range(len(words) - SHINGLE + 1)}


def shell_literals(run: Run) -> tuple[str, ...]:
    """Words of a test (``[ … = word ]``, ``grep word``) that are constants and no operators, options or paths."""
    argv = run.argv
    program = run.program
    if program in ("[", "[[", "test"):
        return tuple(
            word
            for word in argv[1:]
            if word not in ("]", "]]", "=", "==", "!=", "!", "&", "|", "(", ")", "<", ">", "=~", "$()")
            and not word.startswith(("-", "$", "/"))
            and word
        )
    if program in ("grep", "egrep", "fgrep", "rg"):
        words = [word for word in argv[1:] if not word.startswith("-")]
        return (words[0],) if words and "$" not in words[0] else ()
    if program == "case":
        return ()
    return ()


def solution_runs(case: Case) -> list[Run]:
    """Commands of the reference solution, if it is a shell script."""
    oracle = case.stage.oracle
    if not oracle:
        return []
    name = posixpath.basename(oracle[-1])
    path = next((path for path in solution_files(case) if posixpath.basename(path) == name), "")
    text = case.folder.text(path) if path else ""
    interpreter = oracle[0] if len(oracle) > 1 else "bash"
    if not text or ("sh" not in posixpath.basename(interpreter) and interpreter != "bash"):
        return []
    plan = case.folder.plan
    return run_shell(
        text,
        file=path,
        path=oracle[-1],
        cwd=plan.workdir if plan is not None else "/",
        values={"HOME": "/root"},
        read=case.view.read_script,
    )


def secrets_of(case: Case, comparisons: Iterable[Comparison], solution: list[Run]) -> list[Secret]:
    """What is expected, most telling first, each text once."""
    found: dict[str, Secret] = {}
    for secret in _all(case, comparisons, solution):
        text = secret.text.strip()
        if text and len(found) < MOST_SECRETS and text not in found:
            found[text] = Secret(text, secret.where, secret.output, secret.whole)
    return list(found.values())


def _all(case: Case, comparisons: Iterable[Comparison], solution: list[Run]) -> Iterator[Secret]:
    yield from _of_shell(case)
    for comparison in comparisons:
        output = next((detail for kind, detail in comparison.origins if kind == "file"), "")
        if comparison.operator in ("==", "in", "startswith", "endswith", "set", "!=", "superset", "subset"):
            for literal in comparison.literals:
                yield Secret(str(literal), comparison.where, output, comparison.operator == "==")
    yield from _of_files(case)
    for run in solution:
        text = content_of(run).decode(errors="replace") if run.writes or run.program == "tee" else ""
        for path, _ in run.writes:
            if text.strip() and case.of_agent(path):
                yield Secret(text, run.where, path, whole=True)


def _of_shell(case: Case) -> Iterator[Secret]:
    for run in case.runs:
        literals = shell_literals(run)
        if not literals:
            continue
        readers = [base for base in run.basis() if base.program in ("cat", "head", "tail", "jq", "tr", "sed", "awk")]
        paths = [base.path(word) for base in readers for word in base.argv[1:] if "/" in word and word[0] not in "-$"]
        if run.program in ("grep", "egrep", "fgrep"):
            paths = [run.path(word) for word in run.argv[2:] if word[:1] not in ("-", "$", "")]
        output = next((path for path in paths if case.of_agent(path)), "")
        for literal in literals:
            yield Secret(literal, run.where, output, run.program not in ("grep", "egrep", "fgrep"))


def _of_files(case: Case) -> Iterator[Secret]:
    """Data files of the tests that the grader names: their content, and their longer lines."""
    spoken = "\n".join(live.code.text for live in case.live.python)
    spoken += "\n".join(" ".join(run.words) for run in case.runs)
    for path, source in places_of(case).items():
        name = posixpath.basename(path)
        if name.endswith((".py", ".sh", ".pyc", ".md", ".toml", ".ini", ".cfg")) or name not in spoken:
            continue
        text = case.folder.text(source)
        if not text.strip() or len(text) > 100_000:
            continue
        yield Secret(text, source, "", whole=True)
        for line in text.splitlines()[:60]:
            if len(line.strip()) >= 12:
                yield Secret(line, source)
