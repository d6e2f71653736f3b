"""Versions that a repository holds beside the one to start from: each laid over the working tree, as it is.

A later version need not be the reference's text to be right. Commits are counted at run time, so the program that shows
a leak holds none of it. Earlier versions that HEAD leads to are the project's own past and no leak.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.surface import Surface
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks", "repositories", "uses_history"]

MOST_VERSIONS: Final = 5
MOST_REPOSITORIES: Final = 3
_GIT: Final = re.compile(r"^(?P<root>.*)/\.git/")
_HISTORY: Final = re.compile(
    r"\bgit (?:log|show|fsck|reflog|cat-file|stash|checkout|merge|cherry-pick|rev-list|diff|blame|bisect|revert)"
)


def repositories(surface: Surface) -> list[str]:
    """Working trees in view that have a repository."""
    found = {match.group("root") for one in surface.shipped if (match := _GIT.match(one.path))}
    return sorted(found)


def uses_history(surface: Surface) -> bool:
    """Whether the history is where the work is done."""
    return _HISTORY.search(f"{surface.solution}\n{surface.instruction}") is not None


def attacks(trial: Trial) -> Iterator[Attack]:
    """The first, second … version that HEAD does not lead to."""
    if uses_history(trial.surface):
        return
    for root in repositories(trial.surface)[:MOST_REPOSITORIES]:
        git = f"git -c safe.directory='*' -C {shlex.quote(root or '/')}"
        listed = (
            f"{{ {git} rev-list --all --reflog --not HEAD; {git} fsck --no-reflogs --unreachable"
            " | awk '$2 == \"commit\" { print $3 }'; } 2>/dev/null | awk '!seen[$0]++'"
        )
        for number in range(1, MOST_VERSIONS + 1):
            body = f'version=$({listed} | sed -n {number}p)\n[ -n "$version" ] && {git} checkout -q "$version" -- .\n'
            what = f"version {number} of those that the repository {root} holds and HEAD does not lead to"
            yield Attack(flaw="future-history", what=what, body=body, where=f"{root}/.git")
