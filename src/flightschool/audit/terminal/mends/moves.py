"""Files that must not lie where the policy can read or write them: taken out of the image, or into the tests."""

from __future__ import annotations

import posixpath
import shlex

from flightschool.audit.terminal.mends.draft import Draft
from flightschool.audit.terminal.mends.records import AppliedMend
from flightschool.audit.terminal.static.agent_view import ViewFile
from flightschool.audit.terminal.static.case import Case

__all__ = ["append_run", "forget_history", "judge_from_tests", "remove_from_image"]

_LEAKS = ("answer-in-view", "tests-in-view", "build-residue")
_RELIED_ON = ("grader-in-reach", "test-edit", "reread-input", "decorative-guard", "visible-cases", "evaluated-output")


def _named(draft: Draft, flaws: tuple[str, ...]) -> list[tuple[str, str, ViewFile]]:
    """(flaw, where, file of the image) of findings that name a file of the image."""
    found = []
    for finding in draft.findings:
        if finding.flaw not in flaws:
            continue
        words = [word.strip("(),;:'\"`") for word in finding.what.split()]
        path = next((word for word in words if word.startswith("/")), "")
        file = draft.folder.view.find(path)
        if file is not None:
            found.append((finding.flaw, finding.where, file))
    return found


def _is_relied_on(draft: Draft, path: str) -> bool:
    """Whether tests read or run a file of the image, or the policy is told of it."""
    for case in draft.cases:
        if path in case.trust.input_paths or path in case.instruction or posixpath.basename(path) in case.instruction:
            return True
        if any(program.path == path for program in case.trust.grader_programs):
            return True
    return False


def judge_from_tests(draft: Draft) -> list[AppliedMend]:
    """What the grader runs or compares with gets a copy in ``tests/``, and the tests use that."""
    applied: list[AppliedMend] = []
    for flaw, _, file in _named(draft, _RELIED_ON):
        if not file.source or not draft.task.tests_dir:
            continue
        name = f"{draft.task.tests_dir}/kept/{posixpath.basename(file.path)}"
        target = f"/tests/kept/{posixpath.basename(file.path)}"
        if draft.exists(name) and draft.copied.get(name) != file.source:
            continue
        changed = [path for case in draft.cases for path in _redirected(draft, case, file.path, target)]
        if changed:
            draft.copied[name] = file.source
            what = f"the tests use their own copy of {file.path}"
            applied.append(AppliedMend(rule="judge-from-tests", flaws=(flaw,), file=changed[0], what=what))
    return applied


def _redirected(draft: Draft, case: Case, path: str, target: str) -> list[str]:
    """Rewrite a path in the tests' files; those changed."""
    changed = []
    for source in case.live.files:
        if source not in case.tests.places.values():
            continue
        text = draft.text(source)
        new = _replaced(text, path, target)
        folder, name = posixpath.split(path)
        if new == text and folder == case.trust.workdir:
            new = _replaced(text, f"./{name}", target)
        if new != text:
            draft.write(source, new)
            changed.append(source)
    return changed


def _replaced(text: str, path: str, target: str) -> str:
    """Replace a path where it stands for itself, not as the beginning or end of a longer one."""
    out, at = "", 0
    while (found := text.find(path, at)) >= 0:
        end = found + len(path)
        before, after = text[found - 1 : found], text[end : end + 1]
        whole = not any(char and (char.isalnum() or char in "/_-") for char in (before, after))
        longer = after == "." and text[end + 1 : end + 2].isalnum()
        out += text[at:found] + (target if whole and not longer else path)
        at = end
    return out + text[at:]


def remove_from_image(draft: Draft) -> list[AppliedMend]:
    """Answers, copies of tests and residue are removed at the end of the build."""
    places: dict[str, str] = {}
    for flaw, _, file in _named(draft, _LEAKS):
        if not _is_relied_on(draft, file.path):
            places[file.path] = flaw
    if not places or not append_run(draft, "rm -rf -- " + " ".join(shlex.quote(path) for path in places)):
        return []
    what = f"removed from the image: {', '.join(places)}"
    return [
        AppliedMend(
            rule="remove-from-image", flaws=tuple(sorted(set(places.values()))), file=draft.task.dockerfile, what=what
        )
    ]


def forget_history(draft: Draft) -> list[AppliedMend]:
    """Repositories that hold more than the state to start from begin anew."""
    roots: list[str] = []
    for finding in draft.findings:
        if finding.flaw == "future-history":
            root = next((word.rstrip(":") for word in finding.what.split() if word.startswith("/")), "")
            roots += [root.removesuffix("/.git")] if root else []
    view = draft.folder.view
    commands = []
    for root in dict.fromkeys(roots):
        uses_git = any(run.program == "git" for run in view.runs) or "git" in draft.task.instruction.lower()
        again = " && git init -q && git add -A && git -c user.name=task -c user.email=task@localhost commit -qm start"
        commands.append(f"cd {shlex.quote(root)} && rm -rf .git{again if uses_git else ''}")
    if not commands or not append_run(draft, " && ".join(commands)):
        return []
    what = f"the history of {', '.join(dict.fromkeys(roots))} begins with the state to start from"
    return [AppliedMend(rule="forget-history", flaws=("future-history",), file=draft.task.dockerfile, what=what)]


def append_run(draft: Draft, command: str) -> bool:
    """Add a RUN step as root at the end of the Dockerfile, keeping the user whom the image ends with."""
    path = draft.task.dockerfile
    plan = draft.folder.plan
    if not path or plan is None:
        return False
    text = draft.text(path)
    text += "" if text.endswith("\n") else "\n"
    user = plan.user
    lines = f"RUN {command}\n"
    if user and user not in ("root", "0"):
        lines = f"USER root\n{lines}USER {user}\n"
    draft.write(path, text + lines)
    return True
