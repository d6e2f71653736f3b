"""Traces, a workspace and a key ring to seal with, and what looks for text that should be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zstandard

from flightschool.environments import load_environment
from flightschool.evaluation import (
    Acceptance,
    Asked,
    Frozen,
    SealedHoldout,
    Terms,
    accept,
    freeze,
    seal_holdout,
)
from flightschool.evaluation.needles import texts_in
from flightschool.governance import KeyRing
from flightschool.protocols import Environment
from flightschool.records import Message, Task, ToolCall
from flightschool.rollouts import OraclePolicy
from flightschool.store import Workspace
from flightschool.traces import RecordedCall, RecordedEpisode, TaskHint, TraceSet
from flightschool.verification import OutcomeReward

DEEDS = {
    "cancel": "the customer rang twice and wants order {0} stopped before the lorry leaves; make it so",
    "refund": "pay back what was charged for {0}, since its parcel came open and half empty",
    "hold": "keep {0} in the warehouse until somebody signs for the doubtful invoice",
    "rush": "this one, {0}, must fly tonight — whatever freight it costs — tell the desk",
    "split": "ship the ready half of {0} now, the rest follows when painted",
    "merge": "put {0} together with its sister parcel so both travel once",
    "label": "print fresh customs papers for {0}; the old ones name a wrong country",
    "note": 'write into the file of {0} that "déjà vu" was heard by the night shift',
}
STRATA = {"cancel": "calm", "refund": "calm", "hold": "calm", "rush": "calm"}


def episode(deed: str, number: int) -> RecordedEpisode:
    order = f"A{number}"
    ask = DEEDS[deed].format(order)
    reason = f"asked for by the {deed} clerk in writing, page {number}"
    calls = (
        RecordedCall(turn=0, id="1", name="get_order", arguments={"order_id": order}, text="{}", value={}),
        RecordedCall(
            turn=1,
            id="2",
            name=f"{deed}_order",
            arguments={"order_id": order, "reason": reason},
            text='"ok"',
            value="ok",
        ),
    )
    messages = [Message(role="system", content="Do what is asked."), Message(role="user", content=ask)]
    for call, answer in zip(calls, ("{}", '"ok"'), strict=True):
        asked = ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        messages += [
            Message(role="assistant", tool_calls=(asked,)),
            Message(role="tool", content=answer, tool_call_id=call.id),
        ]
    return RecordedEpisode(
        id=f"{deed}-{number}",
        source="test",
        messages=(*messages, Message(role="assistant", content="Done.")),
        calls=calls,
        stated_effects=("get_order", f"{deed}_order"),
        hint=TaskHint(
            id=f"{deed}-{number}",
            family=deed,
            stratum=STRATA.get(deed, "busy"),
            actions=tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls),
        ),
        success=True,
    )


TRACES = TraceSet(
    format="test", episodes=tuple(episode(deed, 10 * i + n) for i, deed in enumerate(DEEDS) for n in range(3))
)


def sealed(space: Workspace, ring: KeyRing, **options: Any) -> tuple[list[Task], Frozen, SealedHoldout]:
    world = load_environment("june", space)
    frozen = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.25)
    assert frozen.holdout is not None
    tasks = [world.task(task_id) for task_id in frozen.holdout.task_digests]
    defaults: dict[str, Any] = {"terms": Terms(looks=2), "unaudited": lambda _: []}
    kept, card = seal_holdout(
        space.store, frozen, world, ring=ring, actor="Vera", root=space.root, **{**defaults, **options}
    )
    return tasks, kept, card


def all_text(folder: Path) -> str:
    """Every text of every file, every zstandard frame that can be cut out of any of them, and raw bytes."""
    pieces = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        pieces.append(raw.decode("utf-8", errors="replace"))
        start = raw.find(b"\x28\xb5\x2f\xfd")
        while start >= 0:
            try:
                data = zstandard.ZstdDecompressor().decompress(raw[start:], max_output_size=1 << 24)
                pieces += [*texts_in(data), data.decode("utf-8", errors="replace")]
            except zstandard.ZstdError:
                pass
            start = raw.find(b"\x28\xb5\x2f\xfd", start + 1)
    return "\n".join(pieces)


def accepted(space: Workspace, ring: KeyRing, **options: Any) -> Acceptance:
    def no_base() -> Environment:
        raise AssertionError("the content lies in the box")

    who: dict[str, Any] = {"actor": "Vera", "role": "evaluation", "reason": "release 4", "candidate_digest": "sha256:a"}
    asked = Asked(**{name: options.pop(name, who.get(name)) for name in (*who, "target")})
    base: dict[str, Any] = {"make_policy": OraclePolicy, "asked": asked, "base": no_base}
    return accept(space.store, "ride", ring=ring, composition=OutcomeReward(), **{**base, **options})
