"""Version control in the image that holds more than the state to start from."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.agent_view import is_below
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.expected import is_distinctive
from flightschool.audit.terminal.static.git_objects import read_repository
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.trust_map import LeakCandidate

__all__ = ["detect"]

_MEND: Final = "make a new repository of the state to start from: rm -rf .git && git init && git commit"
_BACK: Final = frozenset(
    ["reset", "checkout", "revert", "restore", "switch", "rebase", "rm", "branch", "stash", "update-ref", "cherry-pick"]
)


def detect(case: Case) -> Iterator[FlawFinding]:
    """Repositories that are copied, and those that RUN steps make."""
    yield from _copied(case)
    yield from _made(case)


def _copied(case: Case) -> Iterator[FlawFinding]:
    roots = dict.fromkeys(
        path[: path.index("/.git/") + 5] for path in case.view.files if "/.git/" in path
    )  # fmt: skip
    for root in roots:
        files = {
            path[len(root) + 1 :]: case.view.content(f)
            for path in case.view.files
            if path.startswith(root + "/") and (f := case.view.find(path))
        }
        repository = read_repository(files)
        where = next((f.where for f in case.view.below(root)), root)
        newer = repository.commits.keys() - repository.reachable()
        if newer:
            yield case.finding(
                "future-history", f"{root} holds {len(newer)} commit(s) that HEAD does not lead to", where, 0.8, _MEND
            )
        for secret in case.secrets:
            needle = secret.text.encode()
            if (
                is_distinctive(secret.text)
                and secret.text not in case.instruction
                and any(needle in b for b in repository.blobs)
            ):
                case.leaks.append(
                    LeakCandidate(path=root, text=secret.text[:2000], output=secret.output, encoding="git")
                )
                yield case.finding(
                    "future-history", f"objects of {root} hold what {secret.where} expects", where, 0.85, _MEND
                )
                break


def _made(case: Case) -> Iterator[FlawFinding]:
    for folder, runs in _repositories(case).items():
        what = _holds_more(case, folder, runs)
        if what:
            yield case.finding("future-history", f"{folder}: {what}", runs[-1].where, 0.6, _MEND)


def _repositories(case: Case) -> dict[str, list[Run]]:
    """Folders with a repository at the end of the build, and the git commands in each."""
    found: dict[str, list[Run]] = {}
    for run in case.view.runs:
        if run.program == "git":
            folder, words = _where(run)
            targets = [word for word in words[1:] if not word.startswith("-")]
            if words[:1] == ("clone",) and targets:
                name = targets[1] if len(targets) > 1 else posixpath.basename(targets[0]).removesuffix(".git")
                folder = run.path(name) or folder
            found.setdefault(folder, []).append(run)
        elif run.program == "rm":
            gone = [run.path(word.rstrip("/")) for word in run.argv[1:] if not word.startswith("-")]
            places = [posixpath.dirname(path) if path.endswith("/.git") else path for path in gone if path]
            kept = {f: runs for f, runs in found.items() if not any(is_below(f, place) for place in places)}
            found = kept
    return found


def _holds_more(case: Case, folder: str, runs: list[Run]) -> str:
    """Why a repository holds more than the state to start from; empty: it does not, as far as the words tell."""
    verbs = [(_where(run)[1] or ("",))[0] for run in runs]
    pruned = "prune" in verbs or any("--prune=now" in run.argv for run in runs)
    commits = [at for at, verb in enumerate(verbs) if verb == "commit"]
    back = bool(commits) and any(verb in _BACK for verb in verbs[commits[0] + 1 :])
    if "clone" in verbs:
        cloned = verbs.index("clone")
        set_back = any(verb in ("checkout", "reset", "switch") for verb in verbs[cloned + 1 :])
        if set_back and not any(word.startswith("--depth") for word in runs[cloned].argv):
            return "a clone is set back to an earlier state and keeps what came later"
    if (back or any("--amend" in run.argv for run in runs)) and not pruned:
        return "commits are made and taken back, and their objects stay"
    if len(commits) >= 2 and not pruned and _replaced(case, folder, runs, commits):
        return "an earlier commit holds another state of files that the task is about"
    return ""


def _where(run: Run) -> tuple[str, tuple[str, ...]]:
    """Folder and words of a git command, ``-C`` and ``-c`` taken away."""
    words, folder = run.argv[1:], run.cwd
    while words and words[0].startswith("-"):
        if words[0] == "-C" and len(words) > 1:
            folder = run.path(words[1])
        words = words[2 if words[0] in ("-C", "-c") else 1 :]
    return folder, words


def _replaced(case: Case, folder: str, runs: list[Run], commits: list[int]) -> bool:
    """Whether files were removed or written over between the first and the last commit."""
    first, last = case.view.runs.index(runs[commits[0]]), case.view.runs.index(runs[commits[-1]])
    for run in case.view.runs[first + 1 : last]:
        if run.program in ("rm", "mv", "cp", "sed", "patch", "python3", "python", "tee"):
            return True
        if any(path.startswith(folder) for path, _ in run.writes):
            return True
    return False
