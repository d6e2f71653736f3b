"""Attempts at tasks, how they ended, the groups that are compared, and the credit of each member."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.records.base import Record
from flightschool.records.spans import SpanKind, TokenSpan
from flightschool.records.tasks import Message
from flightschool.records.tools import ToolEvent
from flightschool.records.verdicts import Reward, Verdict


class Outcome(StrEnum):
    """Three-way outcome of an attempt."""

    SCORED = "scored"
    POLICY_FAILURE = "policy_failure"  # the policy could have caused it: stays in the denominator
    INFRA_FAILURE = "infra_failure"  # it could not: reward None, retried, never in a baseline


class EndReason(StrEnum):
    """Why an attempt ended, as the harness reports it."""

    FINISHED = "finished"  # the policy ended with a message without a call
    DECLINED = "declined"  # the policy called ``decline``
    MAX_TURNS = "max_turns"
    INVALID_CALLS = "invalid_calls"  # too many calls that could not be parsed or do not exist
    REPEATED = "repeated"  # the same calls failed with the same errors too often in a row
    CONTEXT_FULL = "context_full"  # the policy filled its context
    TRUNCATED = "truncated"  # a completion hit its token limit without ending
    POLICY_ERROR = "policy_error"  # the policy's own program raised
    TIME_LIMIT = "time_limit"  # the policy's program did not end in its time
    RESOURCE_LIMIT = "resource_limit"  # the policy used up memory, processor, disk or what may be kept of it
    UNGRADABLE = "ungradable"  # what the policy left keeps the grader from a verdict that it has without it
    ENGINE_ERROR = "engine_error"  # generation died: infrastructure
    WORLD_ERROR = "world_error"  # the environment's own code raised: infrastructure
    HARNESS_ERROR = "harness_error"  # the program around the policy failed before the policy spoke: infrastructure
    GRADER_ERROR = "grader_error"  # grading failed: infrastructure


INFRA_REASONS = frozenset(
    {EndReason.ENGINE_ERROR, EndReason.WORLD_ERROR, EndReason.HARNESS_ERROR, EndReason.GRADER_ERROR}
)


class Timings(Record, frozen=True, kw_only=True):
    """Times of one attempt. Real times are left out of its digest."""

    virtual_ms: float
    """Critical path on the virtual clock: generation plus, for each turn, the slowest of its parallel calls."""
    wall_s: float = 0.0


class TokenUse(Record, frozen=True, kw_only=True):
    """Tokens that an attempt used, as the server of a model counted them."""

    num_prompt_tokens: int
    """Of all requests together."""
    num_completion_tokens: int


class Attempt(Record, frozen=True, kw_only=True):
    """One attempt at one task by one policy: all that is needed to train on it, judge it again and replay it."""

    id: str
    run: str
    group: str
    index: int
    """Member of the group."""
    number: int
    """0 for the first attempt of this member; infra failures are retried under the next number."""
    environment: str
    """Environment name."""
    environment_digest: str
    task: str
    task_digest: str
    policy: str
    seed: int
    spans: tuple[TokenSpan, ...]
    messages: tuple[Message, ...]
    """The conversation as the policy saw it."""
    events: tuple[ToolEvent, ...]
    outcome: Outcome
    reason: EndReason
    cause: str
    """Who could have caused the end: ``policy``, ``engine``, ``world``, ``harness``, ``grader``."""
    verdict: Verdict | None
    reward: Reward | None
    """None exactly when the outcome is an infra failure."""
    end_state: str
    """Digest of the end state; the bytes are a blob of the store."""
    timings: Timings
    noise: str = "clean"
    """Digest or name of the fault profile."""
    detail: str = ""
    """Text of the error, if one ended the attempt."""
    grammars: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Support of restricted completions → text of the grammar, so that the trainer can restrict its policy alike.
    Unset, and not in the bytes, where every completion had the full support."""
    usage: TokenUse | msgspec.UnsetType = msgspec.UNSET
    """As a server counted, where the tokens themselves are not known. Unset, and not in the bytes, elsewhere."""

    @property
    def digest(self) -> str:
        """Digest of everything but wall-clock times, ids of the run and the attempt's own id."""
        timings = msgspec.structs.replace(self.timings, wall_s=0.0)
        return content_digest(msgspec.structs.replace(self, timings=timings, id="", run="", group=""))

    @property
    def num_completion_tokens(self) -> int:
        """Tokens sampled by the policy; as its server counted them where the tokens are not known."""
        if isinstance(self.usage, TokenUse):
            return self.usage.num_completion_tokens
        return sum(len(s.token_ids_T) for s in self.spans if s.kind is SpanKind.COMPLETION)


class GroupState(StrEnum):
    """Life of a group."""

    COMPLETE = "complete"
    ZERO_ADVANTAGE = "zero_advantage"  # every scored member got the same reward: consumed without a gradient
    TOO_FEW = "too_few"  # fewer than two scored members


class EpisodeGroup(Record, frozen=True, kw_only=True):
    """Attempts at one task that are compared with one another."""

    id: str
    task: str
    size: int
    """Members asked for."""
    members: tuple[Attempt, ...]
    admitted_step: int
    """Trainer step when the group was admitted."""
    state: GroupState = GroupState.COMPLETE

    @property
    def baseline(self) -> tuple[Attempt, ...]:
        """Members that count in the baseline: all but infra failures (policy failures never leave)."""
        return tuple(m for m in self.members if m.reward is not None)


class Credit(Record, frozen=True, kw_only=True):
    """Advantages of one attempt by term, made by the algorithm."""

    attempt: str
    advantage: float
    """Total that the loss uses."""
    terms: dict[str, float]
    """Summands of the total, by name."""
