"""Judging in a separate process: same verdicts, and no verdict at all from a grader that is broken."""

from __future__ import annotations

import io
import os
import sqlite3
import sys

import msgspec
import pytest

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import AnswerCheck, CheckKind, CheckSpec, DiffCheck, Evidence, SqlCheck
from flightschool.verification import CheckVerifier, GradeItem, SeparateGrader, agree, regrade
from flightschool.verification.frames import GradeReply, read_frame, write_frame
from flightschool.verification.worker import serve


def image(value: int) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (v INT)")
    connection.execute("INSERT INTO t VALUES (?)", (value,))
    connection.commit()
    return connection.serialize()


CHECKS = (
    CheckSpec(id="value", kind=CheckKind.FUNCTIONAL, rule=SqlCheck(query="SELECT v FROM t", expected=((2,),))),
    CheckSpec(id="only", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={"t": 1}), weight=2.0),
    CheckSpec(id="said", kind=CheckKind.PROCESS, rule=AnswerCheck(contains=("done",))),
)


def evidence(value: int, answer: str = "Done.") -> Evidence:
    return Evidence(initial_state=image(1), end_state=image(value), answer=answer)


def stand_in(program: str) -> tuple[str, ...]:
    """A grader of another build: a program that has its say on standard output."""
    return (sys.executable, "-c", program)


def test_a_separate_process_judges_the_same() -> None:
    seen = [evidence(1), evidence(2), evidence(2, answer="no")]
    verdicts = regrade(GradeItem(checks=CHECKS, evidence=one) for one in seen)
    here = [CheckVerifier(CHECKS).verify(one) for one in seen]
    assert list(verdicts) == here
    assert [[check.passed for check in v.checks] for v in verdicts] == [
        [False, True, True],
        [True, True, True],
        [True, True, False],
    ]
    assert all(map(agree, here, verdicts))
    assert not agree(here[0], verdicts[1])


def test_agreement_is_about_the_same_checks() -> None:
    verdict = CheckVerifier(CHECKS).verify(evidence(2))
    assert not agree(verdict, msgspec.structs.replace(verdict, checks=verdict.checks[:2]))
    assert not agree(verdict, msgspec.structs.replace(verdict, verifier_digest="sha256:other"))
    reworded = tuple(msgspec.structs.replace(check, evidence="other words") for check in verdict.checks)
    assert agree(verdict, msgspec.structs.replace(verdict, checks=reworded))


def test_an_item_that_cannot_be_judged_does_not_end_the_process() -> None:
    with SeparateGrader() as grader:
        with pytest.raises(InfrastructureError, match="neither an SQLite image"):
            grader.judge(CHECKS[1:2], Evidence(initial_state=b"", end_state=b""))
        assert grader.judge(CHECKS, evidence(2)).checks[0].passed


def test_unusable_checks_are_refused_before_any_process() -> None:
    with SeparateGrader(command=("/nonexistent",)) as grader, pytest.raises(InputError):
        grader.judge((CHECKS[0], CHECKS[0]), evidence(2))


GARBAGE = "import sys; sys.stdout.buffer.write(b'\\x00\\x00\\x00\\x02ok'); sys.stdout.flush(); sys.stdin.buffer.read()"
HALF = "import sys; sys.stdin.buffer.read(4); sys.stdout.buffer.write(b'\\x00\\x00\\x01\\x00abc')"
HUGE = "import sys; sys.stdin.buffer.read(4); sys.stdout.buffer.write(b'\\xff\\xff\\xff\\xff'); sys.stdout.flush()"
DIES = "import os; os._exit(0)"
NOTHING = "import sys; sys.stdin.buffer.read(4)"


@pytest.mark.parametrize("program", [GARBAGE, HALF, HUGE, DIES, NOTHING])
def test_a_grader_that_answers_no_verdict_is_infrastructure(program: str) -> None:
    with (
        SeparateGrader(command=stand_in(program)) as grader,
        pytest.raises(InfrastructureError, match="gave no verdict"),
    ):
        grader.judge(CHECKS, evidence(2))


def test_a_grader_that_cannot_be_started_is_infrastructure() -> None:
    with (
        SeparateGrader(command=("/nonexistent/grader",)) as grader,
        pytest.raises(InfrastructureError, match="cannot be started"),
    ):
        grader.judge(CHECKS, evidence(2))


@pytest.mark.parametrize(
    "program", ["import time; time.sleep(60)", "import sys,time; sys.stdin.read(1); time.sleep(60)"]
)
def test_a_grader_that_hangs_is_cut_off(program: str) -> None:
    big = Evidence(initial_state=image(1), end_state=image(2), answer="x" * 1_000_000)  # more than a pipe holds
    with (
        SeparateGrader(command=stand_in(program), timeout_s=0.3) as grader,
        pytest.raises(InfrastructureError, match=r"more than 0\.3 s"),
    ):
        grader.judge(CHECKS, big)


FORGERY = """
import sys
from flightschool.verification.frames import GradeItem, GradeReply, read_frame, write_frame
from flightschool.verification.verifier import CheckVerifier
import msgspec
item = read_frame(sys.stdin.buffer, GradeItem)
verdict = CheckVerifier(item.checks).verify(item.evidence)
verdict = msgspec.structs.replace(verdict, {change})
write_frame(sys.stdout.buffer, GradeReply(verdict=verdict))
"""


@pytest.mark.parametrize(
    "change",
    [
        "checks=verdict.checks[:1]",
        "checks=tuple(msgspec.structs.replace(c, weight=9.0) for c in verdict.checks)",
    ],
)
def test_a_verdict_on_other_checks_than_asked_is_none(change: str) -> None:
    with (
        SeparateGrader(command=stand_in(FORGERY.format(change=change))) as grader,
        pytest.raises(InfrastructureError, match="not about the checks"),
    ):
        grader.judge(CHECKS, evidence(2))


def test_the_process_is_replaced_after_it_died() -> None:
    with SeparateGrader() as grader:
        grader.judge(CHECKS, evidence(2))
        process = grader._process
        assert process is not None
        process.kill()
        process.wait()
        assert grader.judge(CHECKS, evidence(2)).checks[0].passed


def test_the_grader_sees_no_secrets_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTSCHOOL_TEST_SECRET", "hush")
    tell = "import os,sys; sys.exit(7 if 'FLIGHTSCHOOL_TEST_SECRET' in os.environ else 0)"
    with SeparateGrader(command=stand_in(tell)) as grader:
        process = grader._running()
        assert process.wait() == 0


def test_serving_ends_with_its_requests() -> None:
    requests, replies = io.BytesIO(), io.BytesIO()
    for _ in range(2):
        write_frame(requests, GradeItem(checks=CHECKS, evidence=evidence(2)))
    requests.seek(0)
    serve(requests, replies)
    replies.seek(0)
    for _ in range(2):
        reply = read_frame(replies, GradeReply)
        assert reply is not None
        assert reply.verdict == CheckVerifier(CHECKS).verify(evidence(2))
    assert read_frame(replies, GradeReply) is None


def test_no_process_outlives_the_grader() -> None:
    with SeparateGrader() as grader:
        grader.judge(CHECKS, evidence(2))
        process = grader._process
        assert process is not None
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
