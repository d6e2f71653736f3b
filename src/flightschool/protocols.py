"""The protocols: the architecture on one page.

A harness talks to a *model endpoint* and a *tool endpoint* and knows nothing else. Behind the model endpoint
stands a session, the only writer of token spans, over an engine or a scripted policy; behind the tool endpoint
the boundary, over a world. A verifier sees evidence only after both are closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec

from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Evidence,
    Fault,
    Json,
    Measurement,
    Message,
    Reference,
    Reward,
    Suite,
    Task,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
    Verdict,
    VersionRun,
    WeightsVersion,
)

if TYPE_CHECKING:
    from torch import Tensor

# ------------------------------------------------------------------------------------------------ the episode


class ModelEndpoint(Protocol):
    """What a harness calls a model: messages in, one assistant message out."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next assistant message. Raises ``rollouts.harness.EpisodeEnd`` when the attempt is over."""
        ...


class ToolEndpoint(Protocol):
    """What a harness calls tools."""

    def specs(self) -> Sequence[ToolSpec]:
        """The tools that the task shows."""
        ...

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """Run the calls of one turn in parallel; results in their order. Never raises for errors of the policy."""
        ...


class Harness(Protocol):
    """A program that drives a model through a task."""

    async def run(self, task: Task, model: ModelEndpoint, tools: ToolEndpoint) -> EndReason:
        """Drive one attempt to its end."""
        ...


class World(Protocol):
    """The state of one attempt with the domain code that acts on it. Single use.

    A world that waits for another process or machine says ``waits = True``; its calls then run in threads.
    """

    def execute(self, call: ToolCall) -> WorldReply:
        """Run one call. Errors of the domain are replies; an exception means that the world itself broke."""
        ...

    def snapshot(self) -> bytes:
        """The whole state, canonical: equal states give equal bytes."""
        ...

    def fork(self) -> World:
        """An independent copy of the present state (copy on write where that is cheap)."""
        ...

    def close(self) -> None:
        """Let the state go."""
        ...


class WorldReply(msgspec.Struct, frozen=True, kw_only=True):
    """What domain code answers."""

    value: Json
    is_error: bool = False
    served_by: str = "code"


@runtime_checkable
class Environment(Protocol):
    """Tasks, tools and fresh worlds. Single environments may be built by code or from traces."""

    @property
    def name(self) -> str:
        """Name in the workspace."""
        ...

    @property
    def digest(self) -> str:
        """Digest of tasks, tools, checks, permissions and states."""
        ...

    @property
    def policy_text(self) -> str:
        """The house rules in prose."""
        ...

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share of real traffic."""
        ...

    def tasks(self) -> Sequence[Task]:
        """All tasks, in a fixed order."""
        ...

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError``."""
        ...

    def tools(self) -> Sequence[ToolSpec]:
        """All tools."""
        ...

    def permissions(self, task: Task) -> Permissions:
        """Who may call what in this task."""
        ...

    def open(self, task: Task) -> World:
        """A fresh world in the task's initial state."""
        ...

    def reference(self, task_id: str) -> Reference:
        """The sealed side. Given to verifiers, audits and oracles only."""
        ...


class Permissions(Protocol):
    """Decides calls; default deny."""

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        """Decide one call, knowing what happened before. An exception counts as a denial."""
        ...


class PermissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with the rule that made it."""

    allowed: bool
    rule: str
    reason: str = ""


class Weather(Protocol):
    """The perturbation hook of the boundary: seeded, declarative, outside the policy's sight."""

    @property
    def profile(self) -> str:
        """Name or digest that attempts record."""
        ...

    def strike(self, call: ToolCall, spec: ToolSpec, index: int, turn: int) -> Strike | None:
        """The fault that hits this call, if any. ``index`` counts all calls of the attempt from 0."""
        ...


class Strike(Protocol):
    """One fault about to happen; wraps the execution of a call."""

    @property
    def fault(self) -> Fault:
        """Ground truth of the fault."""
        ...

    def apply(
        self, run: Callable[[], ToolResult], history: Sequence[World], call: ToolCall
    ) -> tuple[ToolResult, float]:
        """Produce what the policy sees, calling ``run`` zero, one or more times; plus extra virtual milliseconds.

        ``history`` holds forks of the world before each successful write, oldest first: stale reads are real.
        """
        ...


class Verifier(Protocol):
    """Judges an end state."""

    @property
    def digest(self) -> str:
        """Digest of the checks and the code version that judges them."""
        ...

    def verify(self, evidence: Evidence) -> Verdict:
        """Judge. Raises ``InfrastructureError`` when it cannot, never returns a default."""
        ...


class RewardComposition(Protocol):
    """Makes one reward of a verdict."""

    @property
    def digest(self) -> str:
        """Digest of the weights."""
        ...

    def compose(self, verdict: Verdict, virtual_ms: float, num_tokens: int | None = None) -> Reward:
        """Terms and total. ``num_tokens``: sampled by the policy; None: not known."""
        ...


# ------------------------------------------------------------------------------------------------ generation


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Continue a token sequence."""

    session: str
    """Sequences of one session extend one another, so the engine may keep their KV cache."""
    token_ids_T: tuple[int, ...]
    """The whole context, prompt first."""
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    temperature: float = 1.0
    seed: int = 0
    prefix_length: int = 0
    """First tokens that other sessions share (a group's prompt), computed once by engines that can; 0: none known."""
    grammar: str = ""
    """Grammar that the completion follows (llguidance's Lark dialect); empty: the full support."""
    num_drawn: int = 0
    """Last tokens of the context that this completion had sampled when it was interrupted: it goes on after them."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What was sampled: exact token ids with the log-probabilities they were sampled under."""

    token_ids_T: tuple[int, ...]
    """Includes the stop token, if one was sampled."""
    logprobs_T: tuple[float, ...]
    versions: tuple[VersionRun, ...]
    kv_step: int
    """Oldest weights step in the cache that the tokens of the newest weights here attended to (a bound)."""
    finish: str
    """``stop``, ``length`` or ``interrupted`` (then perhaps without any token: ask for the rest)."""
    support: str = "full"
    """``full``, or ``grammar:`` with the digest of the request's grammar; then the log-probabilities are renormalised
    over the tokens that the grammar allowed."""
    log_kept_mass_T: tuple[float, ...] = ()
    """Log of the probability that the allowed tokens had together, one a token; empty on the full support."""
    routing_T: tuple[bytes, ...] = ()
    """Mixture of experts: the experts chosen for each token of the context and the completion, as far as they were
    computed (the last token was not); 16-bit numbers, layer by layer. Empty for dense models."""


class Engine(Protocol):
    """Token-exact generation."""

    @property
    def version(self) -> WeightsVersion:
        """Weights in use."""
        ...

    @property
    def max_context(self) -> int:
        """Longest sequence, prompt and completion together."""
        ...

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample a continuation. Raises ``InfrastructureError`` when the engine died."""
        ...

    def release(self, session: str) -> None:
        """The session is over: free its cache."""
        ...


@runtime_checkable
class TrainedEngine(Engine, Protocol):
    """An engine whose weights follow a trainer's. ``testing.EngineContract`` says in tests what each must do."""

    @property
    def died(self) -> str:
        """What the engine died of; empty while it lives."""
        ...

    async def load_weights(
        self, version: WeightsVersion, state: Mapping[str, Tensor], *, keep_cache: bool = True
    ) -> None:
        """Sample from other weights from the next token on; running requests go on and say which token is whose.

        Args:
            version: what the weights are called from now on.
            state: all parameters by Hugging Face's names; copied.
            keep_cache: whether running sequences keep keys and values of older weights (and say so in ``kv_step``) or
                compute them anew.

        Raises:
            InputError: names or shapes are not the model's; nothing was changed.
            InfrastructureError: the engine does not serve what it was given.
        """
        ...

    async def interrupt(self, session: str | None = None) -> int:
        """Make running requests (of one session, or all) return what they have; returns how many did."""
        ...

    def take_cut_tokens(self) -> int:
        """Tokens sampled for requests that were cancelled or failed, which no completion holds, since last asked."""
        ...

    async def check_health(self) -> None:
        """Raises ``InfrastructureError`` unless the engine can generate."""
        ...

    async def aclose(self) -> None:
        """End: waiters get an ``InfrastructureError``."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back, with the chat roles of the model."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant turn."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; no special tokens are recognised in it, so that tool output cannot forge a turn."""
        ...

    def decode(self, token_ids_T: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        ...

    def turn(self, role: str, text: str) -> tuple[int, ...]:
        """Ids of one whole turn of ``role`` (``system``, ``user``, ``assistant``), opening and closing included."""
        ...

    def open_assistant(self) -> tuple[int, ...]:
        """Ids that open an assistant turn to be sampled."""
        ...

    def close_assistant(self, ended: bool) -> tuple[int, ...]:
        """Ids that must follow a sampled completion before the next turn. ``ended``: it sampled its stop token."""
        ...


# ------------------------------------------------------------------------------------ training and measuring


class GroupSource(Protocol):
    """Where the trainer's groups come from; screening and the pipeline stand behind it."""

    def next_task(self) -> Task | None:
        """The next task to admit, or None when the source is dry."""
        ...

    def report(self, group: EpisodeGroup) -> None:
        """A group of this source was consumed."""
        ...


class WeightPublisher(Protocol):
    """Carries weights from the trainer to engines."""

    def publish(self, step: int) -> WeightsVersion:
        """Make the trainer's present weights visible as ``step``."""
        ...


class Evaluate(Protocol):
    """Measures a model folder on a frozen suite; injected into rooms that must not import ``evaluation``."""

    def __call__(self, suite: Suite, model: Path) -> Sequence[Measurement]:
        """Measure."""
        ...


class TrainBurst(Protocol):
    """A short training on one task or family; injected into screening, which must not import ``training``."""

    def __call__(self, tasks: Sequence[Task], num_steps: int) -> Sequence[Attempt]:
        """Train for a few steps and return the attempts after them."""
        ...


# ------------------------------------------------------------------------------------------------ beneath


class TraceImporter(Protocol):
    """One trace format; one file each under ``traces/formats/``."""

    format: str

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the file looks like this format."""
        ...

    def read(self, path: Path) -> Iterable[object]:
        """Episodes of the file (``traces.records.RecordedEpisode``), or ``TraceError`` naming file and line."""
        ...


R = TypeVar("R", bound=msgspec.Struct)


class Store(Protocol):
    """A workspace's memory: records by kind and key, and content-addressed blobs. Implemented in ``store/``."""

    def put(self, kind: str, key: str, record: msgspec.Struct) -> None:
        """Write or replace one record, durably."""
        ...

    def put_new(self, kind: str, key: str, record: msgspec.Struct) -> bool:
        """Write one record unless its key is taken, atomically; whether it was written."""
        ...

    def put_many(self, records: Iterable[tuple[str, str, msgspec.Struct]]) -> None:
        """Write or replace (kind, key, record) triples: all of them or, if anything fails, none."""
        ...

    def get(self, kind: str, key: str, type_: type[R]) -> R:
        """One record. Raises ``NotFoundError`` with the nearest known keys."""
        ...

    def items(self, kind: str, type_: type[R], prefix: str = "") -> Iterator[tuple[str, R]]:
        """Keys and records of a kind in the order of first writing, read piece by piece."""
        ...

    def has(self, kind: str, key: str) -> bool:
        """Whether the record exists."""
        ...

    def keys(self, kind: str, prefix: str = "") -> Sequence[str]:
        """Keys of a kind in the order of first writing."""
        ...

    def delete(self, kind: str, key: str) -> None:
        """Remove one record if it exists."""
        ...

    def put_blob(self, data: bytes) -> str:
        """Keep bytes (compressed); returns their digest."""
        ...

    def get_blob(self, digest: str) -> bytes:
        """Bytes of a digest, checked on the way out."""
        ...


GroupSink = Callable[[EpisodeGroup], Awaitable[None]]
"""Receives finished groups."""
