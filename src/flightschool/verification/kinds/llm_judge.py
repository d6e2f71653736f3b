"""A language model decides whether the answer meets a criterion.

Who is to blame when it gives no verdict? A server that is down, slow or overloaded, a wrong key: infrastructure,
never a 0. A judge that gives no verdict on *this* answer, again and again, is first asked about a harmless one: if it
rules there, the answer is what it could not rule on, and that the policy can cause (a text that trips a filter, or
talks the judge out of its form); it does not pass. If it does not rule there either, the judge is broken:
infrastructure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from flightschool.errors import InfrastructureError, InputError
from flightschool.models import ChatModel, RefusedRequestError, parse_endpoint
from flightschool.records import Evidence, Json, JudgeCheck, Vote
from flightschool.verification.judging import ask, read_ruling, refusal
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.states import States
from flightschool.verification.voting import decide, tally

__all__ = ["JUDGE"]

_TRIES = 3
_MOST_VOTES = 16
_HARMLESS = "The work that was asked for is done, as described in the task."


class _NoRulingError(Exception):
    """The judge answers, and what it answers is no verdict."""


def _judge(rule: JudgeCheck, states: States) -> Finding:
    evidence = states.evidence
    refused = refusal(rule, evidence.answer)
    if refused:
        return Finding(False, refused)
    with states.resources.open_model(rule) as model:

        def vote(number: int) -> Vote | _NoRulingError:
            try:
                return _vote(rule, evidence, model, number)
            except _NoRulingError as error:
                return error

        with ThreadPoolExecutor(max_workers=min(rule.votes, 4)) as pool:
            answers = list(pool.map(vote, range(rule.votes)))
        failed = next((answer for answer in answers if isinstance(answer, _NoRulingError)), None)
        if failed is not None:
            return _without_ruling(rule, model, failed)
    votes = tuple(answer for answer in answers if isinstance(answer, Vote))
    passed = decide(rule.quorum, votes)
    reasons = "; ".join(f"{v.voter}: {v.evidence}" for v in votes[:2])
    return Finding(passed, f"{tally(votes)}. {reasons}"[:1500], votes)


def _vote(rule: JudgeCheck, evidence: Evidence, model: ChatModel, number: int) -> Vote:
    problem = ""
    for attempt in range(_TRIES):
        question = ask(rule, evidence, number)  # a new fence each time
        first_pair = number < 2 and attempt == 0
        try:
            reply = model.complete(
                question.messages,
                max_tokens=1024,
                temperature=0.0 if first_pair else 0.7,  # the same words again at 0 would say the same again
                seed=number * _TRIES + attempt,
            )
        except RefusedRequestError as error:
            raise _NoRulingError(error.what) from error
        if reply.finish == "content_filter":
            raise _NoRulingError("the server's filter withheld the reply")
        ruling = read_ruling(question, reply.text)
        if not isinstance(ruling, str):
            order = "met first" if question.passing == "A" else "met last"
            return Vote(voter=f"vote {number} ({order})", passed=ruling[0], evidence=ruling[1])
        problem = f"{ruling} ({reply.finish})"
    raise _NoRulingError(problem)


def _without_ruling(rule: JudgeCheck, model: ChatModel, failed: _NoRulingError) -> Finding:
    """Not passed if the judge rules on a harmless answer; otherwise it is broken."""
    harmless = Evidence(initial_state=b"", end_state=b"", answer=_HARMLESS)
    try:
        _vote(msgspec.structs.replace(rule, shows=("answer",)), harmless, model, 0)
    except _NoRulingError as error:
        raise InfrastructureError(
            f"the judge gives no verdict, on a harmless answer either: {error}",
            where=rule.endpoint,
            expected='one JSON object {"fence", "choice", "reason"} that repeats the fence of the request',
            mend="choose a model that follows the form, and judge the stored evidence again",
        ) from failed
    return Finding(False, f"the judge gives no verdict on this answer alone: {failed}")


def _problem(rule: JudgeCheck) -> str:
    if not rule.criterion.strip():
        return "the criterion is empty"
    if not 2 <= rule.votes <= _MOST_VOTES or rule.votes % 2:
        return (
            f"{rule.votes} votes: an even number from 2 to {_MOST_VOTES}, so that both orders are asked equally often"
        )
    if "answer" not in rule.shows:
        return "the judge is not shown the answer"
    if rule.least_words < 1 or rule.most_characters < 1 or not 0.0 < rule.timeout_s < math.inf:
        return "least_words, most_characters and timeout_s must be positive"
    try:
        parse_endpoint(rule.endpoint, key_env=rule.key_env)
    except InputError as error:
        return f"{error.what}: {error.expected}"
    return ""


def _expected(rule: JudgeCheck) -> Iterator[Json]:
    return iter((rule.reference,) if rule.reference else ())


JUDGE = Kind(_judge, _problem, _expected)
