"""What the orchestrator and the trainer say to each other, as msgpack bytes. Imports no torch.

The conversation is strictly question and answer: one ``Command``, one ``Reply``. The trainer holds weights, gradients
and the optimizer; all accounting (which group, when to step, what is consumed) is the orchestrator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from flightschool.records import GroupState, Record, TokenSpan, WeightsVersion

__all__ = [
    "Account",
    "Accumulate",
    "Accumulated",
    "Command",
    "Done",
    "Export",
    "Failed",
    "Manifest",
    "Ready",
    "Reply",
    "Save",
    "Start",
    "Step",
    "StepStats",
    "Stepped",
    "Stop",
    "TrainGroup",
    "TrainMember",
    "TrainerSpec",
    "decode_command",
    "decode_reply",
    "encode",
    "num_tokens",
]


# ------------------------------------------------------------------------------------------------ what trains


class TrainMember(Record, frozen=True, kw_only=True):
    """One attempt as the trainer sees it: tokens, one number, and perhaps one more for each turn and each token."""

    attempt: str
    advantage: float
    spans: tuple[TokenSpan, ...]
    turn_advantages: Mapping[int, float] = msgspec.field(default_factory=dict)
    """Turn → what is added to the advantage on that turn's tokens."""
    token_advantages: Mapping[int, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """Completion span → what is added to the advantage of each of its tokens."""
    grammars: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Support of restricted completions → text of the grammar."""


class TrainGroup(Record, frozen=True, kw_only=True):
    """A group with a gradient."""

    id: str
    members: tuple[TrainMember, ...]


def num_tokens(group: TrainGroup) -> int:
    """Tokens that a group sends through the model at most: the first prompt once, every other span for itself."""
    prompts = [member.spans[0] for member in group.members if member.spans]
    own = sum(len(span.token_ids_T) for member in group.members for span in member.spans[1:])
    first = prompts[0].token_ids_T if prompts else ()
    return own + len(first) + sum(len(span.token_ids_T) for span in prompts if span.token_ids_T != first)


class Account(Record, frozen=True, kw_only=True):
    """How one group was consumed."""

    group: str
    version: int
    """The trainer's version just before the step that consumed it."""
    state: GroupState
    """``complete``: it had a gradient."""
    applied: bool = True
    """Whether that step was applied; false: it was not finite and was skipped."""


class StoredFile(Record, frozen=True, kw_only=True):
    """A file of a checkpoint, as it was written."""

    name: str
    num_bytes: int
    digest: str
    """See ``sums.file_digest``."""


class Manifest(Record, frozen=True, kw_only=True):
    """What a checkpoint knows beside weights; lies in its folder, so both become durable by one rename."""

    run: str
    incarnation: int
    step: int
    lineage: tuple[tuple[int, int], ...]
    """(incarnation, last step of it that this checkpoint descends from), oldest first."""
    consumed: tuple[str, ...]
    """Ids of all groups that this lineage has consumed, in order of consumption."""
    accounts: tuple[Account, ...] = ()
    """How each of them was consumed, in the same order; empty in checkpoints of older versions."""
    files: tuple[StoredFile, ...] = ()
    """What lies beside it in the checkpoint's folder; empty elsewhere, and in checkpoints of older versions."""


class TrainerSpec(Record, frozen=True, kw_only=True):
    """All that a trainer needs to start."""

    run: str
    incarnation: int
    step: int
    model: str
    """Folder of the model that the run began with: configuration and tokenizer, and weights at step 0."""
    checkpoint: str = ""
    """Folder of the checkpoint to go on from; empty at step 0."""
    run_dir: str
    weights: str
    """File through which weights are published; empty: nothing is published."""
    settings: str
    """``TrainingSettings`` as JSON."""


# ------------------------------------------------------------------------------------------------ commands


class Start(Record, frozen=True, kw_only=True, tag="start"):
    """Load weights and optimizer, publish the weights of the present step."""

    spec: TrainerSpec


class Accumulate(Record, frozen=True, kw_only=True, tag="accumulate"):
    """Add the gradient of groups; they may go through the model together."""

    groups: tuple[TrainGroup, ...]


class Step(Record, frozen=True, kw_only=True, tag="step"):
    """Apply what was accumulated, or skip it if it is not finite; publish."""

    num_flat_members: int = 0
    """Members of groups without a gradient that count in means over members."""


class Save(Record, frozen=True, kw_only=True, tag="save"):
    """Write a checkpoint under this folder's name, whole or not at all."""

    directory: str
    manifest: Manifest


class Export(Record, frozen=True, kw_only=True, tag="export"):
    """Write the model as a Hugging Face folder."""

    directory: str


class Stop(Record, frozen=True, kw_only=True, tag="stop"):
    """End."""


Command: TypeAlias = Start | Accumulate | Step | Save | Export | Stop

# ------------------------------------------------------------------------------------------------ replies


class Ready(Record, frozen=True, kw_only=True, tag="ready"):
    """The trainer has loaded."""

    version: WeightsVersion
    num_parameters: int = 0


class Accumulated(Record, frozen=True, kw_only=True, tag="accumulated"):
    """A gradient was added."""

    num_forward_tokens: int
    """Tokens that went through the model; a shared prefix once a pass."""
    num_trained_tokens: int
    seconds: float


class StepStats(Record, frozen=True, kw_only=True):
    """One step in numbers. Means are over the trained tokens of the step."""

    loss: float
    grad_norm: float
    """Before clipping."""
    num_trained_tokens: int
    num_forward_tokens: int
    entropy: float
    """Of the current policy, in nats a token."""
    surprisal: float = 0.0
    """Mean −log π of the trained tokens under the policy before the step, in nats: the loss of an imitation."""
    ess: float
    """Effective sample size of the importance weights, as a share of the tokens: (Σw)² / (n Σw²)."""
    k1: float
    """Mean of log μ − log π: mismatch between the sampling policy μ and the trainer's π, first estimator."""
    k3: float
    """Mean of exp(d) − 1 − d, d = log π − log μ: third estimator, never negative."""
    clip_share: float
    """Share of tokens whose policy ratio was clipped."""
    tis_share: float
    """Share of tokens whose importance weight was truncated."""
    reject_share: float = 0.0
    """Share of tokens that a rejecting correction left without a gradient."""
    kl: float = 0.0
    """Mean divergence from the reference; 0 where it is no part of the loss."""
    advantage_scale: float = 1.0
    """What the step's gradient was divided by beside its denominator (root mean square advantage of
    ``reinforce_pp``)."""
    fresh_mismatch: float = 0.0
    """Mean |log π − log μ| of tokens whose whole context was computed under the trainer's version: the engine's
    noise."""
    stale_mismatch: float = 0.0
    """The same of all other tokens: noise and staleness."""
    max_abs_mismatch: float
    """Largest |log π − log μ|."""
    replayed_share: float = 0.0
    """Share of forward tokens whose experts were those of generation; 0 for dense models."""
    seconds: float
    """Compute of the step: forward, backward, optimizer, publication."""


class Stepped(Record, frozen=True, kw_only=True, tag="stepped"):
    """A step was applied (``version``) or skipped (None: loss or gradient were not finite)."""

    version: WeightsVersion | None
    stats: StepStats


class Done(Record, frozen=True, kw_only=True, tag="done"):
    """The command was carried out."""

    digest: str = ""


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """The command failed; an error as the error tree tells it."""

    kind: str
    what: str
    where: str = ""
    expected: str = ""
    mend: str = ""


Reply: TypeAlias = Ready | Accumulated | Stepped | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Command | Reply) -> bytes:
    """Bytes of a message."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """A command of its bytes."""
    return _commands.decode(data)


def decode_reply(data: bytes) -> Reply:
    """A reply of its bytes."""
    return _replies.decode(data)
