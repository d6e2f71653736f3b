"""Test commands in real sandboxes, on end states that the policy made hostile."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest
from tests import needs

from flightschool.environments.terminal.end_state import EndState
from flightschool.errors import InfrastructureError
from flightschool.records import Check, CheckKind, CheckSpec, CommandCheck, Evidence
from flightschool.sandbox import best_provider
from flightschool.sandbox.written import Written, WrittenKind
from flightschool.verification import CheckVerifier, files_room

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _sandbox() -> None:
    async def try_one() -> None:
        await (await best_provider()).aclose()

    try:
        asyncio.run(try_one())
    except InfrastructureError as error:
        needs.sandbox(str(error))


def judged(rule: CommandCheck, end: bytes, start: bytes = b"") -> Check:
    spec = CheckSpec(id="tests", kind=CheckKind.FUNCTIONAL, rule=rule)
    (check,) = CheckVerifier([spec]).verify(Evidence(initial_state=start, end_state=end)).checks
    return check


def files(**contents: str) -> bytes:
    return json.dumps({"files": {"/" + path.replace("__", "/"): text for path, text in contents.items()}}).encode()


READ = CommandCheck(
    command=("sh", "/tests/test.sh"),
    files={"/tests/test.sh": 'test "$(cat /app/answer)" = 42\n'},
    timeout_s=20.0,
)


def test_right_and_wrong_work_and_none() -> None:
    assert judged(READ, files(app__answer="42\n")).passed
    assert not judged(READ, files(app__answer="41\n")).passed
    assert not judged(READ, files()).passed


def test_what_the_policy_left_in_place_of_the_tests_is_gone() -> None:
    forged = files(app__answer="0", tests__test="x")
    assert not judged(READ, forged.replace(b"/tests/test", b"/tests/test.sh")).passed
    blocked = json.dumps({"files": {"/app/answer": "42", "/tests": "a file where a folder must be"}}).encode()
    assert judged(READ, blocked).passed


def test_links_that_the_policy_left_lead_nowhere(tmp_path: Path) -> None:
    """A link over the tests' folder, and one out of the tree: nothing is written through either."""
    outside = tmp_path / "outside"
    outside.mkdir()
    state = EndState(
        entries=(
            Written(path="/app/answer", kind=WrittenKind.FILE, data=b"42", mode=0o600),
            Written(path="/app/deep/../../../../../../tmp/evil", kind=WrittenKind.FILE, data=b"x"),
            Written(path="/app/out", kind=WrittenKind.LINK, target=str(outside)),
            Written(path="/tests", kind=WrittenKind.LINK, target=str(outside)),
        )
    ).to_bytes()
    assert judged(READ, state).passed
    assert not list(outside.iterdir())
    with files_room(READ, state) as spec:
        assert spec.root is not None
        root = Path(spec.root.path)
        assert (root / "tests/test.sh").is_file()
        assert not (root / "tests").is_symlink()
        assert (root / "app/out").is_symlink()
        assert (root / "app/deep/tmp/evil").is_file()  # ".." in a path is a name that is left out
    assert not root.exists()


def test_a_program_that_never_ends_is_the_policys_doing_if_the_tests_end_without_it() -> None:
    rule = CommandCheck(
        command=("sh", "/tests/test.sh"),
        files={"/tests/test.sh": "test -f /app/run.sh && sh /app/run.sh\n"},
        timeout_s=2.0,
    )
    check = judged(rule, files(app__run="x").replace(b"/app/run", b"/app/run.sh").replace(b'"x"', b'"sleep 600"'))
    assert not check.passed
    assert "on the end state alone" in check.evidence


def test_tests_that_never_end_are_infrastructure() -> None:
    rule = CommandCheck(command=("sleep", "600"), timeout_s=1.0)
    with pytest.raises(InfrastructureError, match="on the initial state too"):
        judged(rule, files())


REPORT = """<testsuite><testcase name="a"/><testcase name="b">{b}</testcase></testsuite>"""


@pytest.mark.parametrize(
    ("report", "passed"),
    [
        (REPORT.format(b=""), True),
        (REPORT.format(b="<skipped/>"), False),
        (REPORT.format(b="<failure/>"), False),
        ("<testsuite/>", False),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]>" + REPORT.format(b=""), False),
        ("no xml", False),
        ("", False),
    ],
)
def test_a_report_must_show_the_expected_number(report: str, passed: bool) -> None:
    script = "cp /app/report /reports/report.xml 2>/dev/null; exit 0\n"
    rule = CommandCheck(
        command=("sh", "/tests/t.sh"),
        files={"/tests/t.sh": script},
        junit="/reports/report.xml",
        num_tests=2,
        timeout_s=20.0,
    )
    assert judged(rule, files(app__report=report) if report else files()).passed is passed


def test_the_verifier_can_be_asked_inside_an_event_loop() -> None:
    async def inside() -> bool:
        return judged(READ, files(app__answer="42")).passed

    assert asyncio.run(inside())


def test_python_tests_see_no_configuration_of_the_policys() -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None or not os.path.realpath(python).startswith("/usr"):
        needs.skip("a Python below /usr", "install python3 with this machine's package manager")
    rule = CommandCheck(
        command=(python, "-I", "/tests/t.py"), files={"/tests/t.py": "import sys; sys.exit(3)\n"}, timeout_s=20.0
    )
    planted = json.dumps({"files": {"/home/user/sitecustomize.py": "import os; os._exit(0)"}}).encode()
    assert not judged(rule, planted).passed
