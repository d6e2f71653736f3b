"""The records: every fact that passes between stations, frozen, in the order of the flow.

Wire data only, no behaviour beyond small derived properties. Units stand in names (``_ms`` virtual or real
milliseconds, ``_s`` seconds); shape letters: ``T`` tokens of one span, ``G`` members of a group.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from flightschool.digest import digest as content_digest

Json: TypeAlias = Any
"""A JSON value. Arguments and results of tools are data of other people's making, hence not typed further."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, refusing unknown fields when decoded."""


# ------------------------------------------------------------------------------------------------ tools


class Effect(StrEnum):
    """What a tool does to the world; permissions and caching hang on it."""

    READ = "read"  # changes nothing
    WRITE = "write"  # changes state that can be changed back
    SEND = "send"  # reaches a person or a system outside; cannot be taken back
    DESTROY = "destroy"  # removes what cannot be restored


class Latency(Record, frozen=True, kw_only=True):
    """Latency distribution of a tool on the virtual clock: lognormal, ``median_ms`` · exp(``sigma`` · z)."""

    median_ms: float = 100.0
    sigma: float = 0.0


class ToolSpec(Record, frozen=True, kw_only=True):
    """A tool as the policy sees it, with what the boundary must know about it."""

    name: str
    description: str
    parameters: dict[str, Json]
    """JSON Schema of the arguments: an object schema."""
    effect: Effect = Effect.READ
    idempotent: bool = False
    """Whether calling twice with equal arguments leaves the same state as calling once."""
    latency: Latency = Latency()


class ToolCall(Record, frozen=True, kw_only=True):
    """One call that the policy asks for."""

    id: str
    name: str
    arguments: dict[str, Json]


class Fault(Record, frozen=True, kw_only=True):
    """Ground truth of an injected fault; the policy never sees this record."""

    kind: str
    """For instance ``timeout_before_write`` or ``stale_read``."""
    family: str
    """Family of faults, so that whole families can be held out."""
    detail: str = ""


class Permission(Record, frozen=True, kw_only=True):
    """The boundary's decision about one call."""

    allowed: bool
    rule: str
    """Name of the rule that decided; ``default`` when none matched."""
    reason: str = ""


class ToolResult(Record, frozen=True, kw_only=True):
    """What came back from one call. ``content`` and ``is_error`` are all that the policy sees."""

    call_id: str
    content: str
    is_error: bool = False
    served_by: str = "code"
    """Rung of the ladder that answered: ``code``, ``recording``, ``cache``, ``fault``, ``boundary`` …"""
    fault: Fault | None = None
    permission: Permission | None = None


class ToolEvent(Record, frozen=True, kw_only=True):
    """A call with its result as the boundary logged it."""

    index: int
    """Position in the attempt, counted from 0."""
    turn: int
    """Assistant turn that asked for it; calls of one turn ran in parallel."""
    call: ToolCall
    result: ToolResult
    effect: Effect
    start_ms: float
    """Virtual clock at the start of the call."""
    end_ms: float
    """Virtual clock at its end."""


# ------------------------------------------------------------------------------------------------ messages and tasks


class Message(Record, frozen=True, kw_only=True):
    """One chat message, in the roles of the OpenAI chat format."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls asked for; only on ``assistant``."""
    tool_call_id: str = ""
    """The call answered; only on ``tool``."""


class Split(StrEnum):
    """Where a task may be used. Decided by family, never by row."""

    POOL = "pool"  # may be screened and trained on
    SUITE = "suite"  # frozen, measured on, never trained on
    HOLDOUT = "holdout"  # sealed until acceptance


class Task(Record, frozen=True, kw_only=True):
    """A task as the harness and the policy may see it. References and checks live in ``Reference``."""

    id: str
    family: str
    """Tasks of one family share wording, condition structure and world; splits never cut through a family."""
    stratum: str
    instruction: str
    initial_state: str
    """Name or digest of the state that an attempt starts from, understood by the environment."""
    guidance: str = ""
    """Excerpt of the policy text that the agent is shown."""
    tools: tuple[str, ...] = ()
    """Names of the tools shown; empty means all."""
    example: tuple[Message, ...] = ()
    """One worked example, shown before the instruction; empty means none."""
    max_turns: int = 8
    """Assistant turns before the attempt is cut."""

    @property
    def digest(self) -> str:
        """Content digest of the task."""
        return content_digest(self)


# ------------------------------------------------------------------------------------------------ checks


class CheckKind(StrEnum):
    """What a failed check means."""

    FUNCTIONAL = "functional"  # part of the outcome
    CONSTRAINT = "constraint"  # a violation: gates the reward
    PROCESS = "process"  # shapes, bounded


class SqlCheck(Record, frozen=True, kw_only=True, tag="sql"):
    """The query on the end state returns exactly ``expected`` (rows in any order unless the query orders them)."""

    query: str
    expected: tuple[tuple[Json, ...], ...]


class DiffCheck(Record, frozen=True, kw_only=True, tag="diff"):
    """Rows added, removed or changed against the initial state stay within ``allowed`` (table → most rows)."""

    allowed: dict[str, int]


class CallCheck(Record, frozen=True, kw_only=True, tag="calls"):
    """Between ``least`` and ``most`` *successful* calls of ``tool`` whose arguments contain ``arguments``."""

    tool: str
    arguments: dict[str, Json] = {}
    least: int = 1
    most: int | None = None
    before: str | None = None
    """If set, only calls before the first successful call of this tool count."""


class AnswerCheck(Record, frozen=True, kw_only=True, tag="answer"):
    """The final message contains (case-folded) every one of ``contains``."""

    contains: tuple[str, ...]


FLOAT_NOISE = 1e-9
"""What arithmetic in floats may leave, in terms of the number: the default of ``relative``. Of whole numbers it says
nothing; they are equal or not, unless another bound is declared."""


class Comparison(Record, frozen=True, kw_only=True):
    """How a found value is held against an expected one, at every depth."""

    tolerance: float = 0.0
    """Largest absolute difference of two equal numbers."""
    relative: float = FLOAT_NOISE
    """Largest difference in terms of the expected number; the larger of the two bounds counts. The default holds for
    floats alone."""
    order: Literal["ordered", "set", "multiset", "by_key"] = "ordered"
    """How the items of lists find one another."""
    key: str = ""
    """Field that identifies an item; ``by_key`` only."""
    ignore: tuple[str, ...] = ()
    """Places that are not compared, as dotted paths; ``*`` stands for any one part: ``orders.*.updated_at``."""
    subset: bool = False
    """Whether found objects may have more keys than expected ones."""
    unit: str = ""
    """Unit of expected numbers; found texts with a unit are converted to it, bare numbers are taken to be in it."""


class StateCheck(Record, frozen=True, kw_only=True, tag="state"):
    """The end state is the expected one: tables of rows (as objects) of SQLite, top-level keys of JSON."""

    expected: dict[str, Json]
    compare: Comparison = Comparison(order="multiset")
    unnamed: Literal["unchanged", "ignored"] = "unchanged"
    """What holds for tables that ``expected`` does not name: as in the initial state, or anything."""


class JsonCheck(Record, frozen=True, kw_only=True, tag="json"):
    """The value at ``pointer`` (RFC 6901) of a JSON end state equals ``expected``."""

    expected: Json
    pointer: str = ""
    compare: Comparison = Comparison()


class FileCheck(Record, frozen=True, kw_only=True, tag="file"):
    """A file of the end state holds what is expected, or was removed (``absent``), or not written (``unwritten``)."""

    path: str
    format: Literal["text", "json", "jsonl", "csv", "sha256", "absent", "unwritten"] = "text"
    expected: Json = None
    """Text; JSON; list of rows; hex digest. Text is compared without line-end differences and trailing white space."""
    compare: Comparison = Comparison()


class CommandCheck(Record, frozen=True, kw_only=True, tag="command"):
    """A test command ends with 0 in a second, fresh sandbox that holds the end state."""

    command: tuple[str, ...]
    """Words; no shell sees them."""
    files: dict[str, str] = {}
    """Tests and references by absolute path, laid over the end state: what the policy left there is gone."""
    timeout_s: float = 600.0
    junit: str = ""
    """Absolute path of a JUnit report that the command writes, in a folder of its own."""
    num_tests: int = 0
    """Tests that the report must show as run and passed: none collected, or all skipped, is no pass."""


class NumberAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_number"):
    """The final message states one number (of a unit), and it is the expected one."""

    value: float
    unit: str = ""
    """Empty: a bare number, whatever word follows it."""
    tolerance: float = 0.0
    relative: float = FLOAT_NOISE
    """The default holds for fractions alone, as in ``Comparison``."""
    which: Literal["only", "last"] = "only"
    """``only``: all numbers stated are the expected one, so listing many passes nothing; ``last``: the last is."""
    after: str = ""
    """If set, only what follows the last occurrence of this text is read."""
    decimal: Literal[".", ","] = "."


class DateAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_date"):
    """The final message states one calendar date, and it is the expected one."""

    date: str
    """ISO 8601, year-month-day."""
    slashes: Literal["refused", "day_first", "month_first"] = "refused"
    """How 03/05/2024 is read; ``refused``: only where one reading is possible."""
    which: Literal["only", "last"] = "only"
    after: str = ""


class SetAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_set"):
    """The final message lists exactly the expected items: a JSON list, bullets, or items between commas."""

    items: tuple[str, ...]
    order: Literal["ordered", "set", "multiset"] = "set"
    after: str = ""


class JsonAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_json"):
    """The final message is JSON, or holds exactly one fenced block of it, and it equals ``expected``."""

    expected: Json
    compare: Comparison = Comparison()
    after: str = ""


class JudgeCheck(Record, frozen=True, kw_only=True, tag="judge"):
    """A language model says that the answer meets a criterion, asked more than once with the options swapped."""

    criterion: str
    endpoint: str
    """``openai:URL#MODEL``: any server of the OpenAI chat format."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; servers without keys: an empty text."""
    reference: str = ""
    """What a right answer says; shown to the judge alone."""
    shows: tuple[Literal["answer", "calls"], ...] = ("answer",)
    votes: int = 2
    """Times that the judge is asked; the order of the two options alternates."""
    quorum: Literal["all", "majority"] = "all"
    least_words: int = 2
    """Shorter answers are not put before the judge and do not pass."""
    most_characters: int = 20_000
    """Longer answers neither."""
    timeout_s: float = 60.0


class Milestone(Record, frozen=True, kw_only=True):
    """Something that happens on the way: a successful call, or a state at the end."""

    id: str
    tool: str = ""
    arguments: dict[str, Json] = {}
    result: Json = None
    """If set, part of the result's JSON."""
    times: int = 1
    """Matching calls that it takes."""
    after: tuple[str, ...] = ()
    """Milestones that must be reached in an earlier turn: calls of one turn ran in parallel, none knew the other."""
    state: CheckRule | None = None
    """Instead of a call: what must hold of the end state."""


class MilestoneCheck(Record, frozen=True, kw_only=True, tag="milestones"):
    """Milestones are reached, each after those that it names."""

    milestones: tuple[Milestone, ...]
    targets: tuple[str, ...] = ()
    """Those that this check asks for; empty: all."""


class Minefield(Record, frozen=True, kw_only=True):
    """Something that must not happen: a call, or a state at the end."""

    id: str
    tool: str = ""
    arguments: dict[str, Json] = {}
    attempts: bool = False
    """Whether calls that failed or were denied count too."""
    unless_after: str = ""
    """A milestone; calls in a later turn than it was reached are free."""
    state: CheckRule | None = None
    """Instead of a call: what must *not* hold of the end state."""


class MinefieldCheck(Record, frozen=True, kw_only=True, tag="minefields"):
    """None of the minefields was stepped on."""

    mines: tuple[Minefield, ...]
    milestones: tuple[Milestone, ...] = ()
    """Those that ``unless_after`` names, with all that these come after."""


class PanelMember(Record, frozen=True, kw_only=True):
    """One rule of a panel."""

    name: str
    rule: CheckRule
    author: str = ""


class PanelCheck(Record, frozen=True, kw_only=True, tag="panel"):
    """Several independent rules on the same question; how they differ is kept in the check's votes."""

    members: tuple[PanelMember, ...]
    decision: Literal["majority", "all", "veto"] = "all"
    """``majority``: more than half pass; ``all``; ``veto``: a majority, and none of ``veto`` is against."""
    veto: tuple[str, ...] = ()
    """Members whose no decides."""


CheckRule: TypeAlias = (
    SqlCheck
    | DiffCheck
    | CallCheck
    | AnswerCheck
    | StateCheck
    | JsonCheck
    | FileCheck
    | CommandCheck
    | NumberAnswerCheck
    | DateAnswerCheck
    | SetAnswerCheck
    | JsonAnswerCheck
    | JudgeCheck
    | MilestoneCheck
    | MinefieldCheck
    | PanelCheck
)


class CheckSpec(Record, frozen=True, kw_only=True):
    """A check as declared: data, so that it has a digest and can be judged in another process."""

    id: str
    kind: CheckKind
    rule: CheckRule
    weight: float = 1.0
    author: str = "environment"


class Reference(Record, frozen=True, kw_only=True):
    """The sealed side of a task: what it takes to judge it. Never given to a harness, a session or a policy."""

    task_id: str
    checks: tuple[CheckSpec, ...]
    oracle: tuple[ToolCall, ...] = ()
    """A sequence of calls that solves the task; empty when none is known."""
    oracle_answer: str = "Done."
    """The final message after the oracle's calls."""
    twin: str = ""
    """Id of the permitted twin of a must-abstain task (and the reverse)."""
    abstain: bool = False
    """Whether the right act is an explicit ``decline``."""


class Vote(Record, frozen=True, kw_only=True):
    """One voice in a check that several decide: a member of a panel, or one asking of a judge."""

    voter: str
    passed: bool
    evidence: str = ""


class Check(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One check as judged."""

    id: str
    kind: CheckKind
    weight: float
    passed: bool
    evidence: str
    author: str
    votes: tuple[Vote, ...] = ()
    """Who said what, where more than one was asked; left out of the bytes where there are none."""

    @property
    def disagreement(self) -> bool:
        """Whether its voters differ."""
        return len({vote.passed for vote in self.votes}) > 1


class MemberVerdict(Record, frozen=True, kw_only=True):
    """What one verifier of several said."""

    name: str
    verdict: Verdict
    veto: bool = False
    """Whether its no alone decides."""


class Verdict(Record, frozen=True, kw_only=True, omit_defaults=True):
    """All checks of one attempt."""

    checks: tuple[Check, ...]
    verifier_digest: str
    members: tuple[MemberVerdict, ...] = ()
    """Whole verdicts of a panel's members; left out of the bytes where there are none."""

    @property
    def disagreement(self) -> bool:
        """Whether independent voters differ on any check: such attempts go to review."""
        return any(check.disagreement for check in self.checks)

    @property
    def violations(self) -> tuple[str, ...]:
        """Ids of the constraint checks that failed."""
        return tuple(c.id for c in self.checks if c.kind is CheckKind.CONSTRAINT and not c.passed)


class Evidence(Record, frozen=True, kw_only=True):
    """All that a verifier may look at: an immutable snapshot, made after the policy was cut off."""

    initial_state: bytes
    end_state: bytes
    events: tuple[ToolEvent, ...] = ()
    answer: str = ""


class Reward(Record, frozen=True, kw_only=True):
    """Terms of one attempt. ``total`` = ``gate`` · (all other terms as the composition weighs them)."""

    outcome: float
    """0..1; 1 only if every functional check passed."""
    process: float
    """0..1 before weighing."""
    latency: float
    """0..1 before weighing; 0 unless the outcome is 1."""
    gate: float
    """1, or 0 when a constraint was violated."""
    total: float
    composition_digest: str = ""
    thinking: float | msgspec.UnsetType = msgspec.UNSET
    """0..1 before weighing: how well a correct attempt kept its budget of sampled tokens, 0 unless the outcome is 1.
    Unset, and not in the bytes, where the composition has no budget."""

    @property
    def success(self) -> bool:
        """Everything functional done and nothing violated."""
        return self.outcome >= 1.0 and self.gate >= 1.0


# ------------------------------------------------------------------------------------------------ tokens


class WeightsVersion(Record, frozen=True, kw_only=True):
    """Which weights: versions of different incarnations are never compared by number."""

    run: str
    incarnation: int
    step: int
    digest: str = ""


class VersionRun(Record, frozen=True, kw_only=True):
    """``count`` consecutive tokens that were sampled under the weights of ``step``."""

    step: int
    count: int


class SpanKind(StrEnum):
    """Who wrote the tokens."""

    PROMPT = "prompt"
    OBSERVATION = "observation"
    COMPLETION = "completion"  # sampled by the policy: what reinforcement trains
    DEMONSTRATION = "demonstration"  # written by a recorded operator, without log-probabilities: only imitated


class TokenSpan(Record, frozen=True, kw_only=True):
    """A run of tokens of one author; spans form a forest, a trajectory is a path from root to leaf."""

    id: int
    parent: int | None
    kind: SpanKind
    token_ids_T: tuple[int, ...]
    logprobs_T: tuple[float, ...] = ()
    """Behaviour log-probabilities, one a token, on completions; empty on all others."""
    versions: tuple[VersionRun, ...] = ()
    """Weights versions, run-length coded, covering exactly the tokens of a completion."""
    kv_step: int = 0
    """Oldest weights step in the KV cache under this completion's tokens of the newest weights (a bound)."""
    temperature: float = 1.0
    support: str = "full"
    """``full``, or ``grammar:`` with the digest of a grammar (its text stands in the attempt): log-probabilities are
    then those of the policy renormalised over the tokens that the grammar allowed."""
    log_kept_mass_T: tuple[float, ...] = ()
    """Log of the probability that the allowed tokens had together, one a token; empty on the full support."""
    turn: int = 0
    """Assistant turn, counted from 0."""
    routing_ref: str = ""
    """Where the experts chosen for these tokens are kept, prompt tokens too: digest of a blob, ``#``, first byte,
    number of tokens, bytes a token. Empty: a dense model, or not kept."""


# ------------------------------------------------------------------------------------------------ attempts and groups


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


# ------------------------------------------------------------------------------------------------ examination


class Severity(StrEnum):
    """Weight of a finding."""

    INFO = "info"
    WARNING = "warning"
    BARRING = "barring"  # the task may not train


class Finding(Record, frozen=True, kw_only=True):
    """Something that an audit found, with the evidence that proves it."""

    probe: str
    severity: Severity
    what: str
    evidence: str = ""
    actions: tuple[Message, ...] = ()
    """Assistant messages that show it again, played alone at the task; empty where nothing has to be played."""
    confidence: float = 1.0
    """0..1: 1 for what was executed, 0 for a probe that could not finish and shows nothing."""
    mend: str = ""
    """What the author of the environment should change."""


class AuditVerdict(StrEnum):
    """One verdict a task, in order of precedence."""

    BROKEN_ORACLE = "broken-oracle"
    LEAKING = "leaking"
    EXPLOITABLE = "exploitable"
    REFUSES_CORRECT_WORK = "refuses-correct-work"
    FLAKY = "flaky"
    UNAUDITED = "unaudited"
    SOUND = "sound"


class TaskAudit(Record, frozen=True, kw_only=True):
    """Result of auditing one task; the training gate asks for it by the task's and the verifier's digest."""

    environment: str
    task: str
    task_digest: str
    verifier_digest: str
    verdict: AuditVerdict
    findings: tuple[Finding, ...] = ()
    num_repeats: int = 0
    """Plays of the reference solution, each in a fresh world."""
    flake_bound: float = 1.0
    """Exact upper bound (95 %) of the share of plays that end in another state or verdict."""
    equivalent_mutants: tuple[str, ...] = ()
    """Changes of the reference's calls that turned out to be the same work; their passing says nothing."""


class ScreeningDecision(Record, frozen=True, kw_only=True):
    """What screening learned about one task of the pool."""

    task: str
    task_digest: str
    policy: str
    num_rollouts: int
    num_scored: int
    mean_reward: float
    signal_probability: float
    """Posterior probability that a group of the training size carries reward variance, freed of the verifier's errors
    where these are known from reviews."""
    admitted: bool
    reason: str


class StratumShare(Record, frozen=True, kw_only=True):
    """One stratum of a suite."""

    name: str
    weight: float
    """Share of real traffic; the shares of a suite sum to 1."""
    num_tasks: int
    families: tuple[str, ...]
    trained: bool
    """Whether the coming training was declared to train this stratum."""


class Suite(Record, frozen=True, kw_only=True):
    """A frozen evaluation suite. There is no way from a suite to a training pool."""

    name: str
    environment: str
    environment_digest: str
    task_digests: dict[str, str]
    """Task id → digest, in the order of evaluation."""
    strata: tuple[StratumShare, ...]
    holdout: bool = False
    seed: int = 0
    frozen_at: str = ""
    """Time of the freeze, ISO 8601 UTC. Left out of the digest."""

    @property
    def digest(self) -> str:
        """Digest of the suite's content."""
        return content_digest(msgspec.structs.replace(self, frozen_at=""))


class Measurement(Record, frozen=True, kw_only=True):
    """A number that was *measured* on a suite. It is no reward, and nothing turns one into the other."""

    name: str
    value: float
    low: float
    high: float
    num_items: int
    unit: str = ""
    method: str = ""


class ReviewLabel(Record, frozen=True, kw_only=True):
    """A person's judgement of one attempt that was drawn for review. Labels are added, never replaced."""

    sheet: str
    """Name of the review sheet on which the attempt stands."""
    attempt: str
    reviewer: str
    label: Literal["right", "wrong", "hack"]
    """``hack``: wrong work that was made to look right."""
    reason: str
    passed: bool
    """What the verifier had said."""
    stratum: str
    inclusion: float
    """Probability with which the attempt was drawn, in (0, 1]."""
    number: int
    """0 for the first label that this reviewer gave this attempt; the highest one holds."""
    at: str
    """ISO 8601 UTC."""
    entry: str
    """Digest of the log entry that records it."""


class LogEntry(Record, frozen=True, kw_only=True):
    """One line of the audit log, chained to the one before it."""

    index: int
    at: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Json]
    previous: str
    digest: str
