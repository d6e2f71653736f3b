"""What the policy sends must be graded, and nothing of it may be left for the next attempt.

Output that no one can grade leaves the denominator if it is taken for a fault of the house, and a policy that cannot
win learns to send it (mitre-atlas issue 21: exploit rates of 11 to 50 %). State that stays lets one attempt's work pass
another's task (DeepAgent issue 9).
"""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.junk import junk_calls
from flightschool.audit.probes.base import barring
from flightschool.errors import InfrastructureError
from flightschool.records import Finding, Json, Message, ToolCall
from flightschool.rollouts import NoopPolicy

UNGRADABLE = "ungradable"
CARRY_OVER = "carry-over"
_LONG = "x" * 200_000
_DEEP = 200
NUM_CLOSELY = 3
"""Tasks of a stratum at which each kind of output is tried by itself: it is a matter of tools and checks."""


def probe_ungradable(exam: Examination) -> Iterable[Finding]:
    """Answers and arguments that break careless graders: each must end in a reward, and none in a full one."""
    exam.play_policy(NoopPolicy())  # raises where nothing can be graded here: then no output is to blame
    for name, turns in _broken(exam):
        try:
            play = exam.play_turns(turns, name)
        except InfrastructureError as error:
            what = f"{name} is taken for a fault of the house: a policy can leave the denominator with it"
            yield barring(UNGRADABLE, what, _storable(error.what))
            continue
        if play.success:
            yield barring(UNGRADABLE, f"{name} passes", _storable(play.told))


def _broken(exam: Examination) -> Iterable[tuple[str, tuple[Message, ...]]]:
    """One play with everything at each task; each by itself at a few of every stratum."""
    surrogate, controls = "\ud800", "\x00\x1b[31m\u202e"
    writes = junk_calls(exam.specs)[:3]
    values = {"a deeply nested argument": _nested(), "an argument with a lone surrogate": surrogate}
    calls = tuple(_with(call, value, place) for place, value in enumerate(values.values()) for call in writes)
    first = (Message(role="assistant", tool_calls=calls),) if calls else ()
    yield "output that is no text", (*first, Message(role="assistant", content=surrogate))
    if exam.task.id not in {task.id for task in exam.neighbourhood.stratum(exam.task)[:NUM_CLOSELY]}:
        return
    closing = Message(role="assistant", content="Done.")
    for name, value in {**values, "an argument of 200,000 characters": _LONG}.items():
        if writes:
            yield name, (Message(role="assistant", tool_calls=tuple(_with(call, value, 0) for call in writes)), closing)
    for name, answer in (("control characters in the answer", controls), ("an answer of 200,000 characters", _LONG)):
        yield name, (Message(role="assistant", content=answer),)


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()[:600]


def _nested() -> Json:
    value: Json = 1
    for _ in range(_DEEP):
        value = [value]
    return value


def _with(call: ToolCall, value: Json, place: int) -> ToolCall:
    return ToolCall(id=f"{call.id}-{place}", name=call.name, arguments=dict.fromkeys(call.arguments, value))


def probe_carry_over(exam: Examination) -> Iterable[Finding]:
    """After all that was played here and at other tasks, a fresh world is what it was, even beside a busy one."""
    environment, oracle = exam.examiner.environment, exam.oracle
    busy = environment.open(exam.task)
    try:
        for call in exam.reference.oracle:
            busy.execute(call)
        found, again = (_fresh(exam) for _ in range(2))
    finally:
        busy.close()
    if found == again != exam.initial_state:  # worlds that never are alike are the flake probe's matter
        what = "a fresh world holds what an earlier attempt, or one beside it, has done"
        yield barring(CARRY_OVER, what, f"{len(found)} bytes, {len(exam.initial_state)} at first", oracle)


def _fresh(exam: Examination) -> bytes:
    world = exam.examiner.environment.open(exam.task)
    try:
        return world.snapshot()
    finally:
        world.close()
