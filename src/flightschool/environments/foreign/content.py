"""An environment of another ecosystem, as data: what is kept of it here, and what its digest covers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.errors import InputError
from flightschool.records import (
    CheckKind,
    CheckSpec,
    Effect,
    Json,
    JsonCheck,
    Record,
    Reference,
    Task,
    ToolCall,
    ToolSpec,
)

__all__ = ["QUARTERS", "ForeignContent", "ForeignTask", "reward_checks"]

QUARTERS = (25, 50, 75)
"""Parts of the full reward, in percent, that are checks of their own: a partly solved task earns a part."""


class ForeignTask(Record, frozen=True, kw_only=True):
    """How one task is begun over there."""

    start: dict[str, Json]
    """What the episode is opened with: seed, task id, split and index …"""
    opening_digest: str = ""
    """Digest of the first observation, where equal starts were seen to give equal ones; empty: it is not compared."""


class ForeignContent(Record, frozen=True, kw_only=True):
    """All that makes an imported environment what it is."""

    ecosystem: str
    """``openenv``, ``reasoning-gym`` …: who opens its episodes."""
    address: str
    """Where it is now: a URL, a command. Not in the digest: an environment that moves is still the same."""
    source: dict[str, Json]
    """What identifies it over there, and settings that change answers; understood by the ecosystem's own code."""
    policy_text: str
    strata: dict[str, float]
    tasks: tuple[Task, ...]
    starts: dict[str, ForeignTask]
    """Task id → how it is begun."""
    references: tuple[Reference, ...]
    tools: tuple[ToolSpec, ...]
    allowed: tuple[str, ...]
    """Tools that a policy may call. Those whose effect nobody confirmed are not among them."""
    threshold: float = 1.0
    """Reward from which a task counts as solved."""
    reward_rule: str = "sum"
    """``sum``, ``last`` or ``max`` of the rewards of all steps."""
    replays: bool = True
    """Whether an episode may be played again after a break. Not where tools act on something real."""
    key_env: str = ""
    """Environment variable with a bearer token; its value is kept nowhere."""

    @property
    def digest(self) -> str:
        """Digest of everything but the address."""
        return content_digest(msgspec.structs.replace(self, address="", key_env=""))


def reward_checks(*, graded: bool = True) -> tuple[CheckSpec, ...]:
    """Checks of a task whose reward is made over there: solved, and for graded ones the quarters on the way.

    The foreign reward stands in the end state, which no policy sees; the checks read it there.
    """
    solved = CheckSpec(
        id="solved",
        kind=CheckKind.FUNCTIONAL,
        rule=JsonCheck(pointer="/solved", expected=True),
        author="foreign environment",
    )
    parts = tuple(
        CheckSpec(
            id=f"reward-{part}",
            kind=CheckKind.FUNCTIONAL,
            rule=JsonCheck(pointer=f"/reached/{part}", expected=True),
            author="foreign environment",
        )
        for part in QUARTERS
    )
    return (solved, *parts) if graded else (solved,)


def confirmed(specs: Sequence[ToolSpec], guessed: Sequence[str], *, confirm: bool) -> tuple[str, ...]:
    """Names that a policy may call: guesses that somebody confirmed, and reads. Default deny for the rest.

    Raises:
        InputError: nothing is left to call.
    """
    doubtful = set() if confirm else set(guessed)
    names = tuple(spec.name for spec in specs if spec.name not in doubtful or spec.effect is Effect.READ)
    if not names:
        raise InputError(
            f"the effects of all {len(specs)} tools are guesses",
            where="tools",
            expected="effects that somebody has looked at",
            mend="look at them with --json, then import again with --confirm-effects",
        )
    return names


def oracle(calls: Sequence[tuple[str, dict[str, Json]]]) -> tuple[ToolCall, ...]:
    """Calls of a known solution."""
    return tuple(ToolCall(id=f"call_{n}", name=name, arguments=given) for n, (name, given) in enumerate(calls))
