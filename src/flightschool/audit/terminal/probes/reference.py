"""The reference solution: it must pass, again and again, and one fixed end state must always be judged alike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flightschool.audit.terminal.examination import Examination, Play, together
from flightschool.audit.terminal.packing import reference_body
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.shared import grade_in_place
from flightschool.audit.terminal.trial import finding
from flightschool.errors import FlightschoolError
from flightschool.rollouts.terminal import SolutionPolicy

__all__ = ["Repeats", "flake_bound", "play_reference", "repeat", "why_broken"]

REGRADES: Final = 6
"""Gradings of one fixed end state, beyond the first."""
ROUND: Final = 6
ENOUGH: Final = 10
"""Plays after which a reference that failed is not played any more."""
_SLOW_S: Final = (1.0, 5.0, 30.0)
"""Seconds of one play from which on fewer repeats are made."""
_NETWORK: Final = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve|network is unreachable"
    r"|failed to (?:connect|resolve)|nameresolutionerror|urlopen error|no address associated|getaddrinfo"
    r"|\bconnectionerror|max retries exceeded|unable to resolve|\benotfound\b|\beai_again\b",
    re.I,
)

_ELSEWHERE: Final = re.compile(r"(?:https?|ftp)://(?!localhost|127\.|0\.0\.0\.0|\[?::1|\$|\{)[\w-]+\.[\w.-]+")
"""An address that is not this machine's."""


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Repeats of the reference."""

    num: int
    num_passed: int
    grading_cost_s: float
    """Seconds of one grading, at its quickest."""
    plays: tuple[Play, ...]

    @property
    def bound(self) -> float:
        """Upper bound of the share of repeats that fail, 95 %."""
        return flake_bound(self.num - self.num_passed, self.num)


def flake_bound(failures: int, runs: int, level: float = 0.95) -> float:
    """Exact one-sided upper bound of a failure rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934).

    The rate p at which so few failures become unlikely: the sum of C(n, k) p^k (1 - p)^(n - k) over k <= failures is
    1 - level. With no failure in n runs it is 1 - (1 - level)^(1/n): 0.139 for 20 runs.
    """
    if runs <= 0 or failures >= runs:
        return 1.0
    low, high = failures / runs, 1.0
    for _ in range(60):  # the sum falls as p rises
        middle = (low + high) / 2
        few = sum(math.comb(runs, k) * middle**k * (1 - middle) ** (runs - k) for k in range(failures + 1))
        low, high = (middle, high) if few > 1 - level else (low, middle)
    return high


async def play_reference(exam: Examination) -> Play:
    """The first play. Raises ``NotRunError`` where the task ships no solution or needs what is not here."""
    return await exam.play(SolutionPolicy())


async def why_broken(exam: Examination, play: Play, tests: str = "") -> FlawFinding:
    """Why a reference fails: its tests want a network, cannot see its work, are flaky, or it is wrong.

    Args:
        exam: the task.
        play: the failed play.
        tests: text of the tests.
    """
    text, body = f"{play.output}\n{play.problem}", reference_body(exam.task)
    found = _NETWORK.search(text) or _ELSEWHERE.search(tests)
    if found:
        what = "the tests of the reference's work ask for a network"
        return finding("network-in-grading", what, play, body, observed=f"{play.told}; {found.group()}")
    hangs = "did not end within" in play.problem or "limit" in play.problem
    once_s = play.agent_s + play.grader_s
    num = 1 if hangs else 6 if once_s < 2 else 2
    again = await together(exam.play(SolutionPolicy(), index=number) for number in range(1, num + 1))
    passed = [one for one in again if one.passes]
    if passed:
        what = f"the reference passes {len(passed)} of {len(again) + 1} times"
        return finding("flaky", what, play, body)
    if hangs:
        return finding("broken-oracle", "the tests of the reference's work come to no end", play, body)
    try:
        in_place = [await grade_in_place(exam) for _ in range(3)]
    except FlightschoolError:
        in_place = []
    if in_place and all(one is not None and one.passes for one in in_place):
        what = "the reference passes when it is graded in its own sandbox and fails when it is graded elsewhere"
        return finding("isolation-refused", what, play, body)
    told = f"{play.told} {play.detail}"
    if body and (await exam.run(body, plain=True)).passes:  # it needs what only the reference's own place gives it
        body, told = "", f"{told}; see it again: flightschool rollout TASK --policy oracle"
    return finding("broken-oracle", "the reference solution does not pass", play, body, observed=told)


async def repeat(
    exam: Examination, first: Play, num: int, *, however_slow: bool = False
) -> tuple[Repeats, list[FlawFinding]]:
    """Repeat the reference and its grading.

    Plays go in rounds. Without a failure they go on to ``num``, so that the bound that is told is exact for the number
    made; once one failed, the task is flaky whatever follows, and a few more say how often. A play that ended in the
    first one's end state is also one more grading of it; what is missing of these is graded without playing.

    Args:
        num: repeats in all, the first included.
        however_slow: make them all; otherwise fewer are made when one takes long.
    """
    plays = [first, *await together(exam.play(SolutionPolicy(), index=place) for place in range(1, min(num, 2)))]
    one_s = plays[-1].cost_s  # of the first one the images and bytecode were made
    for limit, most in zip(_SLOW_S, (10, 5, 3), strict=True):
        num = min(num, most) if one_s > limit and not however_slow else num
    while len(plays) < num and not (len(plays) >= ENOUGH and any(not play.passes for play in plays)):
        places = range(len(plays), min(num, len(plays) + ROUND))
        plays += await together(exam.play(SolutionPolicy(), index=place) for place in places)
    begun = _digests(first)
    fixed = [play for play in plays if _digests(play) == begun]
    most = (REGRADES if one_s < 5 else 2) - (len(fixed) - 1)
    fixed += await together(exam.grade(first.states) for _ in range(most))
    repeats = Repeats(
        num=len(plays),
        num_passed=sum(play.passes for play in plays),
        grading_cost_s=min(play.grading_cost_s for play in plays),
        plays=tuple(plays),
    )
    return repeats, _flakes(exam, repeats, fixed)


def _digests(play: Play) -> list[str]:
    return [state.digest for state in play.states]


def _flakes(exam: Examination, repeats: Repeats, fixed: Sequence[Play]) -> list[FlawFinding]:
    found: list[FlawFinding] = []
    refused = [play for play in fixed if not play.passes]
    failed = [play for play in repeats.plays if not play.passes]
    body = reference_body(exam.task) if refused or failed else ""
    if refused:
        what = f"one fixed end state is graded differently: it passes {len(fixed) - len(refused)} of {len(fixed)} times"
        found.append(finding("flaky", what, refused[0], body))
    if failed:
        alike = "; equal end states are graded alike, so the chance lies in the reference or its world"
        what = f"the reference passes {repeats.num_passed} of {repeats.num} times{'' if refused else alike}"
        found.append(finding("flaky", what, failed[0], body))
    return found
