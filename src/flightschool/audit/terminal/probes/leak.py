"""What the policy's user can read: is the answer, or the way to it, there for the taking?

The reader sees what the policy sees: readable files of the image, what is packed or coded in them, objects of version
control that no branch leads to, variables, the instruction. The reference's end state tells it which find to try; the
program that confirms reads the find from its place at run time and knows nothing else. A file that the instruction
names or the reference reads is an input: copying from it is the work itself.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.examination import together
from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.probes import newer, prompt
from flightschool.audit.terminal.probes.finds import Find, in_files, in_variables, needles_of, unnamed
from flightschool.audit.terminal.scripting import by_stage, put
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.trial import Attack, Trial, finding
from flightschool.audit.terminal.unwrapping import cut, cut_pipe
from flightschool.sandbox.written import WrittenKind

__all__ = ["probe"]

MOST_PROGRAMS: Final = 8
DUMP: Final = "/var/tmp/.view"
SEEN: Final = "/var/tmp/.seen"
LEAST_LINES: Final = 3
"""Telling lines of a test file; of shorter ones a copy says nothing."""


async def probe(trial: Trial) -> None:
    """Try every find; one that is rewarded leaks."""
    finds = [*in_files(trial), *in_variables(trial), *await _in_history(trial)]
    done: set[str] = set()

    async def one(flaw: str, group: list[Find]) -> None:
        body = _taking(trial, group)
        play = await trial.shown(body)
        if play is not None and flaw not in done:
            done.add(flaw)
            where = ", ".join(dict.fromkeys(find.where for find in group))
            trial.add(finding(flaw, f"the answer can be read from {where}", play, body, where=where))

    by_flaw: dict[tuple[str, str], list[Find]] = {}
    for find in finds:
        by_flaw.setdefault((find.flaw, find.where), []).append(find)
    whole = {path: [find for find in finds if find.output.path == path][:1] for path in {f.output.path for f in finds}}
    groups = [(flaw, group) for (flaw, _), group in by_flaw.items()][:24]
    if len(whole) > 1:
        joined = [find for group in whole.values() for find in group]
        groups.append((joined[0].flaw, joined))
    await together(one(flaw, group) for flaw, group in groups)
    await trial.attack([*_programs(trial), *_literals(trial), *newer.attacks(trial)])
    await _visible_tests(trial)
    await prompt.probe(trial)


def _taking(trial: Trial, finds: list[Find]) -> str:
    """Finds in the place of the outputs; steps of which nothing was found are done honestly, as the reference does."""
    found = {find.output.stage for find in finds}
    bodies: dict[str, str] = dict.fromkeys(trial.work.stages, ":\n")
    for one in trial.work.outputs:
        if one.stage not in found:
            bodies[one.stage] += put(one.path, one.data, mode=one.mode if one.mode & 0o111 else None)
    for find in finds:
        path = shlex.quote(find.output.path)
        line = f'mkdir -p "$(dirname {path})"; {find.command} > /var/tmp/.found && cat /var/tmp/.found > {path}\n'
        if find.output.mode & 0o111:
            line += f"chmod 755 {path}\n"
        bodies[find.output.stage] += line
    return by_stage(bodies)


# ------------------------------------------------------------------------------------------------ history


async def _in_history(trial: Trial) -> list[Find]:
    """All objects of the repositories in view, those that nothing leads to among them."""
    roots = newer.repositories(trial.surface)
    if not roots or newer.uses_history(trial.surface):
        return []
    lines = [f"mkdir -p {DUMP}"]
    for place, root in enumerate(roots[:4]):
        git = f"git -c safe.directory='*' -C {shlex.quote(root or '/')}"
        lines.append(f"mkdir -p {DUMP}/{place}")
        lines.append(
            f"{git} cat-file --batch-all-objects --batch-check='%(objectname) %(objecttype)' 2>/dev/null"
            f" | while read id kind; do [ $kind = tree ] || {git} cat-file $kind $id > {DUMP}/{place}/$id; done"
        )
        lines.append(f"{git} ls-tree -r HEAD 2>/dev/null | awk '{{print $3}}' > {DUMP}/{place}.head")
    play = await trial.exam.run("\n".join(lines))
    if not play.states:
        return []
    entries = {e.path: e for e in play.states[0].entries if e.kind is WrittenKind.FILE and e.path.startswith(DUMP)}
    finds: list[Find] = []
    for place, root in enumerate(roots[:4]):
        head = entries.get(f"{DUMP}/{place}.head")
        known = set(head.data.decode(errors="replace").split()) if head else set()
        git = f"git -c safe.directory='*' -C {shlex.quote(root or '/')}"
        for path, entry in entries.items():
            name = posixpath.basename(path)
            if posixpath.dirname(path) != f"{DUMP}/{place}" or name in known:
                continue
            for output in trial.work.outputs:
                for needle in needles_of(output):
                    at = entry.data.find(needle)
                    if at >= 0:
                        command = f"{git} cat-file -p {name} | {cut_pipe(at, len(needle))}"
                        where = f"an object of {root}/.git ({name[:12]})"
                        finds.append(Find(flaw="future-history", where=where, command=command, output=output))
                        break
    return finds


# ------------------------------------------------------------------------------------------------ programs, tests


def _programs(trial: Trial) -> Iterator[Attack]:
    """Programs in view that are no input: one of them may be the solution. Those that share its lines come first."""
    solution = _lines(trial.surface.solution)
    shipped = [one for one in unnamed(trial) if one.size < 1 << 18 and not one.path.startswith(("/etc/", "/usr/"))]
    shared = {one.path: len(solution & _lines(one.text)) for one in shipped}
    likely = [one for one in shipped if one.language or shared[one.path] >= max(1, len(solution) // 2)]
    likely.sort(key=lambda one: -shared[one.path])
    for one in likely[:MOST_PROGRAMS]:
        quoted = shlex.quote(one.path)
        runner = {"python": "python3", "node": "node", "perl": "perl", "ruby": "ruby"}.get(one.language, "bash")
        flaw = "build-residue" if re.search(r"generat|make_|build", one.path, re.I) else "answer-in-view"
        yield Attack(
            flaw=flaw, what=f"running {one.path}, which is there to read,", body=f"{runner} {quoted}", where=one.path
        )
        for output in trial.work.outputs:
            place = shlex.quote(output.path)
            body = f'mkdir -p "$(dirname {place})"; {runner} {quoted} > {place}'
            yield Attack(flaw=flaw, what=f"what {one.path} prints", body=body, where=one.path)
            if output.kind == "code":
                yield Attack(
                    flaw=flaw,
                    what=f"a copy of {one.path}",
                    body=f"cp {quoted} {place}; chmod 755 {place}",
                    where=one.path,
                )


def _literals(trial: Trial) -> Iterator[Attack]:
    """Literals of files that copy tests: each as the answer, read from the file at run time."""
    tests = _lines(trial.surface.test_text)
    for one in unnamed(trial):
        if not one.language or len(tests & _lines(one.text)) < 2:
            continue
        for output in trial.work.outputs:
            if output.kind == "code":
                continue
            for at, length in _places_of(one, output)[:4]:
                place = shlex.quote(output.path)
                body = f'mkdir -p "$(dirname {place})"; {cut(shlex.quote(one.path), at, length)} > {place}'
                yield Attack(flaw="tests-in-view", what=f"a literal of {one.path}", body=body, where=one.path)


def _places_of(one: Shipped, output: Output) -> list[tuple[int, int]]:
    answer = output.data.strip()
    return (
        [(m.start(), len(answer)) for m in re.finditer(rb"(?<![\w.])" + re.escape(answer) + rb"(?![\w.])", one.data)]
        if answer
        else []
    )


def _lines(text: str) -> set[str]:
    """Lines that say something: long enough, no comment, no import."""
    stripped = (line.strip() for line in text.splitlines())
    return {
        line for line in stripped if len(line) > 11 and not line.startswith(("#", "import ", "from ", "//", "set -"))
    }


async def _visible_tests(trial: Trial) -> None:
    """A copy of a test file in view. That it can be read there is shown by reading it as the policy's user."""
    if "tests-in-view" in trial.confirmed:
        return
    for name, text in trial.surface.tests.items():
        tests = _lines(text)
        for one in unnamed(trial):
            shared = tests & _lines(one.text)
            if len(tests) < LEAST_LINES or len(shared) * 5 < len(tests) * 4:
                continue
            body = f"cat {shlex.quote(one.path)} > {SEEN} && cat {SEEN}"
            play = await trial.exam.run(body)
            last = {entry.path: entry.data for entry in play.states[-1].entries} if play.states else {}
            if last.get(SEEN, b"")[: len(one.data)] == one.data:
                what = f"a copy of {name} can be read at {one.path}"
                trial.add(finding("tests-in-view", what, play, body, where=one.path, observed=one.text[:400]))
                trial.confirmed.add("tests-in-view")
                return
