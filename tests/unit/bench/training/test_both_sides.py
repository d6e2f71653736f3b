"""Both sides of ``bench training`` get the same: prompts, readings of answers, rewards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jinja2
import pytest

from flightschool.bench.training import trl_loop
from flightschool.bench.training.orders import MAX_TURNS, Kind, OrdersEnvironment, draw_orders
from flightschool.bench.training.ours import Listed, RandomReward, settings_of
from flightschool.bench.training.workload import Workload, make_workload
from flightschool.engines import ChatTokenizer
from flightschool.engines.catalogue import tiny_folder
from flightschool.errors import InputError
from flightschool.protocols import Tokenizer
from flightschool.records import Message, Reward, SpanKind, ToolCall
from flightschool.rollouts import (
    CompactDialect,
    EpisodeRunner,
    MalformedCallError,
    MessagesPolicy,
    ToolCallingHarness,
    run_attempts,
)
from flightschool.rollouts.recital import RecitalPolicy
from flightschool.verification import OutcomeReward

KINDS: tuple[Kind, ...] = ("refund", "orders")
SIZES: dict[str, Any] = {
    "group_size": 2,
    "groups_per_step": 2,
    "num_steps": 3,
    "max_new_tokens": 40,
    "learning_rate": 1e-9,
    "reward": "random",
}


def call(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id="call_0_0", name=name, arguments=arguments),))


def flown(kind: Kind, said: Sequence[Message]) -> Reward:
    """Our reward of an episode in which this was said."""
    environment = OrdersEnvironment(kind, draw_orders(1, 0))
    (task,) = environment.tasks()
    runner = EpisodeRunner(environment, OutcomeReward(), run="t", harness=ToolCallingHarness(max_invalid=1))
    (attempt,) = run_attempts(runner, [task], MessagesPolicy({task.id: said}, "said"), seed=0)
    assert attempt.reward is not None
    return attempt.reward


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_solves_every_task(kind: Kind) -> None:
    environment = OrdersEnvironment(kind, draw_orders(6, 3))
    for task in environment.tasks():
        reference = environment.reference(task.id)
        turns = [call(c.name, **c.arguments) for c in reference.oracle]
        runner = EpisodeRunner(environment, OutcomeReward(), run="t")
        (attempt,) = run_attempts(runner, [task], MessagesPolicy({task.id: turns}, "oracle"), seed=0)
        assert attempt.reward is not None
        assert attempt.reward.success


def test_orders_occur_once() -> None:
    orders = draw_orders(500, 1)
    assert len({order.id for order in orders}) == 500
    assert draw_orders(500, 1) == orders
    assert draw_orders(500, 2) != orders


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_what_the_session_samples_from_and_what_the_peer_renders(kind: Kind) -> None:
    work, environment = make_workload(kind, tiny_folder(), **SIZES)
    tokenizer: Tokenizer = ChatTokenizer.from_folder(tiny_folder())
    template = jinja2.Environment().from_string(trl_loop.TEMPLATE)
    for prompt, task in zip(work.prompts, environment.tasks(), strict=True):
        policy = RecitalPolicy({task.id: [Message(role="assistant", content="Done.")]}, tokenizer, 4096)
        (attempt,) = run_attempts(EpisodeRunner(environment, OutcomeReward(), run="t"), [task], policy, seed=0)
        assert attempt.spans[0].token_ids_T == prompt.token_ids_T
        messages = [{"role": turn.role, "content": turn.content} for turn in prompt.turns]
        assert template.render(messages=messages, add_generation_prompt=True) == prompt.text
    assert len(work.prompts) == 6
    assert work.max_turns == MAX_TURNS[kind]


def test_the_peers_template_writes_tool_turns_as_the_session_does() -> None:
    environment = OrdersEnvironment("orders", draw_orders(1, 0))
    (task,) = environment.tasks()
    reference = environment.reference(task.id)
    turns = [call(c.name, **c.arguments) for c in reference.oracle] + [Message(role="assistant", content="Done.")]
    tokenizer = ChatTokenizer.from_folder(tiny_folder())
    policy = RecitalPolicy({task.id: turns}, tokenizer, 4096)
    (attempt,) = run_attempts(EpisodeRunner(environment, OutcomeReward(), run="t"), [task], policy, seed=0)
    told: list[dict[str, Any]] = []
    for message in attempt.messages:
        if message.role == "system":
            told.append({"role": "system", "content": CompactDialect().system(message.content, environment.tools())})
        else:
            calls = [{"function": {"name": c.name, "arguments": c.arguments}} for c in message.tool_calls]
            told.append({"role": message.role, "content": message.content, "tool_calls": calls})
    chat = jinja2.Environment()
    chat.policies["json.dumps_kwargs"] = {"sort_keys": False}  # as transformers has it
    text = chat.from_string(trl_loop.TEMPLATE).render(messages=told, add_generation_prompt=False)
    spans = [token for span in attempt.spans for token in span.token_ids_T]
    assert tokenizer.encode_with_control(text)[: len(spans)] == tuple(spans)
    assert {span.kind for span in attempt.spans} >= {SpanKind.OBSERVATION}


@pytest.mark.parametrize(
    "text",
    [
        'refund {"order": "A1", "amount": 3}',
        "Done.",
        "",
        'a {"x": 1}\nb {"y": 2}',
        'refund {"order": ',
        'refund {"a": 1}\nso',
    ],
)
def test_answers_are_read_alike(text: str) -> None:
    theirs = trl_loop.read_answer(text)
    try:
        ours = CompactDialect().parse(text, 0)
    except MalformedCallError:
        assert "tool_calls" not in theirs  # it ends the episode there, as a malformed call does here
        return
    assert [(c.name, c.arguments) for c in ours.tool_calls] == [
        (c["function"]["name"], c["function"]["arguments"]) for c in theirs.get("tool_calls", [])
    ]
    assert ours.content == theirs["content"]


EPISODES: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("nothing", []),
    ("read", [("get_order", {"order": "ID"})]),
    ("blind", [("refund", {"order": "ID", "amount": "PAID"})]),
    ("wrong amount", [("get_order", {"order": "ID"}), ("refund", {"order": "ID", "amount": 1})]),
    ("wrong order", [("get_order", {"order": "X9"}), ("refund", {"order": "X9", "amount": 1})]),
    ("right", [("get_order", {"order": "ID"}), ("refund", {"order": "ID", "amount": "PAID"})]),
    ("read last", [("refund", {"order": "ID", "amount": "PAID"}), ("get_order", {"order": "ID"})]),
]


@pytest.mark.parametrize(("name", "calls"), EPISODES, ids=[name for name, _ in EPISODES])
def test_both_sides_judge_an_order_alike(name: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    del name
    (order,) = draw_orders(1, 0)
    named = {"ID": order.id, "PAID": order.paid}
    acts = [(tool, {k: named.get(v, v) for k, v in arguments.items()}) for tool, arguments in calls]
    ours = flown("orders", [call(tool, **arguments) for tool, arguments in acts])
    desk = trl_loop.Desk()
    desk.reset(id=order.id, item=order.item, carrier=order.carrier, shipping=order.shipping, paid=order.paid)
    for tool, arguments in acts:
        getattr(desk, tool)(**arguments)
    assert trl_loop.share(desk._passed()) == pytest.approx(ours.outcome)


@pytest.mark.parametrize("amount", [1, "PAID"])
def test_both_sides_judge_a_refund_alike(amount: Any) -> None:
    (order,) = draw_orders(1, 0)
    paid = order.paid if amount == "PAID" else amount
    ours = flown("refund", [call("refund", order=order.id, amount=paid)])
    work = {"kind": "refund", "reward": "outcome", "max_new_tokens": 8, "max_turns": 1, "seed": 0}
    watch = trl_loop.Watch(work)
    watch.counts = [5]
    said = f"refund {json.dumps({'order': order.id, 'amount': paid})}"
    assert watch.reward([said], id=[order.id], paid=[order.paid]) == [pytest.approx(ours.outcome)]


def test_rewards_are_drawn_alike() -> None:
    work = {"kind": "refund", "reward": "random", "max_new_tokens": 40, "max_turns": 1, "seed": 3}
    theirs = trl_loop.Watch(work).reward(["", ""], id=["a", "b"], paid=[1, 2])
    verdict: Any = None
    ours = RandomReward(3)
    assert theirs == [ours.compose(verdict, 0.0).outcome for _ in range(2)]
    assert 0.0 <= min(theirs) < max(theirs) < 0.9


def test_ours_trains_as_the_peer_does() -> None:
    work, environment = make_workload("refund", tiny_folder(), **SIZES)
    made = settings_of(work)
    assert (made.mode, made.num_threads, made.separate_process, made.groups_per_step) == ("sync", 2, False, 2)
    assert made.count_zero_advantage
    source = Listed(environment.tasks())
    assert [source.next_task() for _ in range(7)] == [*environment.tasks(), None]


def test_a_model_of_another_chat_format_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        format = type("F", (), {"name": "llama3"})

    monkeypatch.setattr("flightschool.bench.training.workload.ChatTokenizer.from_folder", lambda _: Other)
    with pytest.raises(InputError, match="llama3"):
        make_workload("refund", tmp_path, **SIZES)


def test_a_workload_survives_json() -> None:
    import msgspec

    work, _ = make_workload("orders", tiny_folder(), **SIZES)
    assert msgspec.json.decode(msgspec.json.encode(work), type=Workload) == work
