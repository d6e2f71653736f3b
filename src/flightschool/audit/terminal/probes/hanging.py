"""Work that holds the grader up until its time is over: then there is no verdict, and the attempt counts nowhere.

A grader that runs the policy's programs, patterns or queries must end them itself and write 0. Tried last, where
nothing else was rewarded, since each attempt costs its time limit.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.examination import limited
from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.trial import HANGS, Trial, finding

__all__ = ["endless", "probe"]

QUICK_S: Final = 3.0
"""Least seconds after which a grading that takes a fraction of that seems to hang."""
OWN_LIMIT_S: Final = 60.0
"""Most that is waited for a grader which has a time limit of its own."""
_LIMITS: Final = re.compile(r"\btimeout\b|alarm|ulimit|RLIMIT|wait_for|TimeoutExpired|setitimer|kill", re.I)
_LOOPS: Final = {
    "python": "while True:\n    pass\n",
    "awk": "BEGIN { while (1) ; }\n",
    "node": "for (;;) ;\n",
    "perl": "1 while 1;\n",
    "ruby": "loop {}\n",
    "shell": "#!/bin/sh\nwhile :; do :; done\n",
    "": "#!/bin/sh\nwhile :; do :; done\n",
}
_PATTERN: Final = "(?:(?:(?:(?:.+)+)+)+(?!))|.*\n"
"""Python, Perl: tries every way to cut a text before it takes the text as a whole."""
_LANGUAGES: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (re.compile(r"\bre\.(?:compile|full|mat|sea|find|sub)|grep -\w*P|\bregex\b"), _PATTERN, "a pattern"),
    (re.compile(r"\bsed\b.*-f|\bsed\b.*-\w*f"), ":a\nba\n", "a script for sed"),
    (re.compile(r"\bjq\b"), "def f: f; f\n", "a filter for jq"),
    (re.compile(r"\bawk\b.*-f"), "BEGIN { while (1) ; }\n", "a program for awk"),
    (
        re.compile(r"sqlite|\bexecute\(", re.I),
        "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n\n",
        "a query",
    ),
)


def endless(output: Output, grader: str) -> Iterator[tuple[str, bytes]]:
    """What an output of its kind is when it never ends, and what that is called."""
    if output.kind == "code":
        loop = _LOOPS.get(output.language)
        if loop is not None:
            yield f"a program that never ends in the place of {output.path}", loop.encode()
    elif output.kind in ("text", "table") and len(output.text.splitlines()) <= 40:
        name = posixpath.basename(output.path)
        if any(name in line for line in grader.splitlines()):
            for used, text, told in _LANGUAGES:
                if used.search(grader):
                    yield f"{told} that never comes to an end in {output.path}", text.encode()


async def probe(trial: Trial) -> None:
    """Each endless output by itself, the others as the reference left them."""
    if trial.confirmed or not trial.oracle.passes:
        return
    text = trial.surface.grader_text
    exam = trial.exam
    quick = limited(exam.task, exam.task.limits.agent_s or 60.0, QUICK_S + 4 * trial.oracle.grader_s)
    own = limited(exam.given, 60.0, OWN_LIMIT_S) if _LIMITS.search(text) else exam.task
    rest = {one.path: one.data for one in trial.work.outputs}
    for output in trial.work.outputs:
        for told, data in endless(output, text):
            body = trial.work.fill({**rest, output.path: data})
            play = await exam.run(body, task=quick)
            if play.reward is not None or HANGS not in play.problem:
                continue
            play = await exam.run(body, task=own, plain=True)
            if play.reward is None and HANGS in play.problem:
                what = f"{told} leaves the grader without a verdict, so that the attempt counts nowhere"
                trial.add(finding("ungraded-escape", what, play, body))
                trial.confirmed.add("ungraded-escape")
                return
