"""A judge check over real HTTP, in this process and in a separate grader that gets the key by name."""

from __future__ import annotations

import json
import re

import pytest

from flightschool.errors import InfrastructureError
from flightschool.models import LoopbackServer, Reply, chat_reply
from flightschool.records import CheckKind, CheckSpec, Evidence, Json, JudgeCheck
from flightschool.verification import CheckVerifier, SeparateGrader, agree

pytestmark = [pytest.mark.integration, pytest.mark.long]


def judge(request: dict[str, Json]) -> Reply:
    """Reads its prompt as a model would: the criterion is met if the quoted answer speaks of a new seal."""
    prompt = request["messages"][-1]["content"]
    fence = re.findall(r"The fence is ([0-9a-f]{32})\.", prompt)[-1]
    answer = prompt.split(f"----- {fence}")[1]
    met = "new seal" in answer
    first_is_met = "A: the criterion is met" in prompt
    choice = "A" if met == first_is_met else "B"
    return chat_reply(json.dumps({"fence": fence, "choice": choice, "reason": "read it"}))


def spec(server: LoopbackServer, key_env: str = "LOOP_JUDGE_KEY") -> CheckSpec:
    rule = JudgeCheck(criterion="A new seal was fitted.", endpoint=server.reference("m"), key_env=key_env)
    return CheckSpec(id="judged", kind=CheckKind.FUNCTIONAL, rule=rule)


def seen(answer: str) -> Evidence:
    return Evidence(initial_state=b"{}", end_state=b"{}", answer=answer)


def test_here_and_in_a_separate_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOP_JUDGE_KEY", "sk-test")
    with LoopbackServer(judge) as server, SeparateGrader(pass_env=("LOOP_JUDGE_KEY",)) as grader:
        for answer, passed in (("I fitted a new seal.", True), ("The old one was cleaned.", False)):
            here = CheckVerifier([spec(server)]).verify(seen(answer))
            there = grader.judge([spec(server)], seen(answer))
            assert here.checks[0].passed is passed
            assert len(here.checks[0].votes) == 2
            assert agree(here, there)


def test_a_grader_without_the_key_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOP_JUDGE_KEY", "sk-test")
    told = pytest.raises(InfrastructureError, match="LOOP_JUDGE_KEY")
    with LoopbackServer(judge) as server, SeparateGrader() as grader, told:
        grader.judge([spec(server)], seen("I fitted a new seal."))


def test_a_server_that_is_gone_is_infrastructure_and_no_zero() -> None:
    with LoopbackServer(judge) as server:
        gone = spec(server, key_env="")
    gone = CheckSpec(id="j", kind=CheckKind.FUNCTIONAL, rule=gone.rule)
    with pytest.raises(InfrastructureError, match="no answer in"):
        CheckVerifier([gone]).verify(seen("I fitted a new seal."))
