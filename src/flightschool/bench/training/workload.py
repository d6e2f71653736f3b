"""What both sides get: the same model folder, the same prompts as the same token ids, the same limits and reward.

Written as JSON, since the peer's process imports nothing of this package. Ours checks the ids of the prompts that it
really sampled from against these, and so does the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from flightschool.bench.training.orders import MAX_TURNS, Kind, Order, OrdersEnvironment, draw_orders
from flightschool.engines import ChatTokenizer
from flightschool.errors import InputError
from flightschool.records import Message, Record, Task, ToolSpec
from flightschool.rollouts import opening_messages
from flightschool.rollouts.dialect import CompactDialect

__all__ = ["Prompt", "Side", "StepFigures", "Turn", "Workload", "make_workload"]


class Turn(Record, frozen=True, kw_only=True):
    """One message as text, in the roles that a plain ChatML template knows."""

    role: str
    content: str


class Prompt(Record, frozen=True, kw_only=True):
    """One task as it is first shown."""

    order: Order
    turns: tuple[Turn, ...]
    text: str
    """Rendered, the assistant's turn opened."""
    token_ids_T: tuple[int, ...]


class Workload(Record, frozen=True, kw_only=True):
    """One measurement, for either side."""

    kind: Kind
    model: str
    prompts: tuple[Prompt, ...]
    """One a group, in the order of training."""
    group_size: int
    groups_per_step: int
    num_steps: int
    """The first is a warm-up and counts in nothing."""
    max_new_tokens: int
    """Of one turn."""
    max_turns: int
    learning_rate: float
    reward: Literal["random", "outcome"]
    """``random``: drawn, so that every group has a gradient. ``outcome``: fifths of the task."""
    num_threads: int = 2
    micro_batch: int = 8
    """Rows that the peer sends through the model at once."""
    seed: int = 0
    goal: float | None = None
    """End after the first step whose rollouts succeed in this share."""
    limit_s: float | None = None
    """Begin no step after so many seconds."""
    mode: Literal["sync", "async"] = "sync"
    """Ours only. ``sync``: one process; ``async``: trainer and generation in a process each."""


class StepFigures(Record, frozen=True, kw_only=True):
    """One optimizer step of either side."""

    wall_s: float
    """Since the step before ended; of the first: since training began."""
    trained_tokens: int
    """Sampled tokens (loss mask 1) that got a gradient."""
    sampled_tokens: int
    num_rows: int
    """Attempts that were sampled."""
    success: float
    reward: float
    train_s: float = 0.0
    """Ours: forward, backward, optimizer, publication."""
    forward_tokens: int = 0
    """Ours: tokens through the model in training, what a pass shares once."""
    prefill_tokens: int = 0
    """Ours: distinct prompt and observation tokens of the step, what its prompts begin with once."""
    seen_pairs: int = 0
    """Ours: pairs of one of these or of the sampled tokens (but a row's last) and one that it sees, itself too."""


class Side(Record, frozen=True, kw_only=True):
    """What one side did with a workload."""

    steps: tuple[StepFigures, ...]
    version: str = ""

    @property
    def measured(self) -> tuple[StepFigures, ...]:
        """All steps but the warm-up."""
        return self.steps[1:]

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens trained a second of wall time, end to end."""
        return sum(step.trained_tokens for step in self.measured) / sum(step.wall_s for step in self.measured)

    @property
    def step_s(self) -> float:
        """Mean wall time of an optimizer step."""
        return sum(step.wall_s for step in self.measured) / len(self.measured)

    def reached_s(self, goal: float) -> float | None:
        """Wall time after which the policy succeeded on fresh tasks in a share of ``goal``; None: never.

        A step's rollouts are of tasks that were never trained on, by the policy that the steps before made.
        """
        wall_s = 0.0
        for step in self.steps:
            if step.success >= goal:
                return wall_s
            wall_s += step.wall_s
        return None

    @property
    def wall_s(self) -> float:
        """All steps."""
        return sum(step.wall_s for step in self.steps)


def make_workload(kind: Kind, model: Path, *, seed: int = 0, **sizes: object) -> tuple[Workload, OrdersEnvironment]:
    """Draw orders and render their prompts.

    Args:
        kind: of episode.
        model: folder of the model.
        seed: of the orders and of sampling.
        sizes: other fields of ``Workload``.
    """
    draft = msgspec.convert(
        {"kind": kind, "model": str(model), "prompts": (), "max_turns": MAX_TURNS[kind], "seed": seed, **sizes},
        Workload,
    )
    environment = OrdersEnvironment(kind, draw_orders(draft.groups_per_step * draft.num_steps, seed))
    return msgspec.structs.replace(draft, prompts=render_prompts(environment, model)), environment


def render_prompts(environment: OrdersEnvironment, model: Path) -> tuple[Prompt, ...]:
    """The prompts of all tasks, in order."""
    tokenizer, tools = ChatTokenizer.from_folder(model), environment.tools()
    if tokenizer.format.name != "chatml":
        raise InputError(
            f"the model writes turns as {tokenizer.format.name}",
            where=str(model),
            expected="a model of the ChatML format, for the peer's template is written for it",
            mend="measure with smollm2-135m",
        )
    orders = {order.id: order for order in environment.orders}
    prompts = []
    for task in environment.tasks():
        turns = _turns(task, tools)
        text = "".join(f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in turns)
        text += "<|im_start|>assistant\n"
        ids = tokenizer.encode_with_control(text)
        prompts.append(Prompt(order=orders[task.id], turns=turns, text=text, token_ids_T=ids))
    return tuple(prompts)


def _turns(task: Task, tools: Sequence[ToolSpec]) -> tuple[Turn, ...]:
    """Messages as the dialect writes them; results of tools are told by the user."""
    dialect = CompactDialect()

    def turn(message: Message) -> Turn:
        if message.role == "system":
            return Turn(role="system", content=dialect.system(message.content, tools))
        if message.role == "assistant":
            return Turn(role="assistant", content=dialect.assistant(message))
        told = dialect.result(message.content) if message.role == "tool" else message.content
        return Turn(role="user", content=told)

    return tuple(turn(message) for message in opening_messages(task))
