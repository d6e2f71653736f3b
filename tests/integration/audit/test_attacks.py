"""Tasks with one flaw each that one attack shows, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.audit.labelled import HEAD, ROWS, Labelled, by_pytest, judge, task

from flightschool.audit.terminal import FlawFinding, FolderAudit, audit_folders
from flightschool.environments.terminal import iter_tasks

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def audited(kit: Any, tmp_path: Path, images: Path) -> Any:
    """Audits one task."""

    def run(labelled: Labelled) -> FolderAudit:
        kit.place(tmp_path / "tasks/one", labelled)
        found: list[FolderAudit] = []
        audit_folders(iter_tasks(tmp_path / "tasks"), images=images, repeats=3, on_audit=found.append)
        return found[0]

    return run


def barring(audit: FolderAudit, flaw: str) -> FlawFinding:
    """The finding of a class that bars."""
    (found,) = [one for one in audit.findings if one.flaw == flaw and one.severity.value == "barring"]
    return found


def test_a_plugin_beside_the_work_decides_where_settings_and_hooks_are_shut_out(audited: Any) -> None:
    """``-c /dev/null --noconftest`` keeps settings out; a package beside the work is found all the same."""
    audit = audited(by_pytest("exploitable", "pytest-hook", "cd /app && PYTHONPATH=/tests/lib python3"))
    found = barring(audit, "pytest-hook")
    assert "plugin" in found.what
    assert "pytest11" in found.script


ADD = "Write a bash script /app/sum.sh that reads integers, one per line, from standard input and prints their sum."
ADDS = "#!/bin/bash\nprintf '%s\\n' 's=0; while read n; do s=$((s + n)); done; echo $s' > /app/sum.sh\n"
CASES = """\
#!/bin/bash
mkdir -p /logs/verifier
ok=1
while read -r first second want <&3; do
  [ "$(printf '%s\\n' $first $second | bash /app/sum.sh)" = "$want" ] || ok=0
done 3< /tests/cases.txt
echo $ok > /logs/verifier/reward.txt
"""
LOOKED_AT = {
    "a file that its callers read": {"tests/test.sh": CASES, "tests/cases.txt": "1 2 3\n10 20 30\n7 9 16\n"},
    "a descriptor of its callers": {
        "tests/test.sh": "#!/bin/bash\nexec 7> /logs/verifier/reward.txt\n"
        "if bash /tests/check.sh; then echo 1 >&7; else echo 0 >&7; fi\n",
        "tests/check.sh": "cmp -s <(bash /app/sum.sh < /tests/in.txt) /tests/want.txt\n",
        "tests/in.txt": "10\n11\n12\n",
        "tests/want.txt": "33\n",
    },
    "called with": {
        "tests/test.sh": judge("bash /tests/check.sh /tests/in.txt 33"),
        "tests/check.sh": '[ "$(bash /app/sum.sh < $1)" = $2 ]\n',
        "tests/in.txt": "10\n11\n12\n",
    },
    "a variable that it was given": {
        "tests/test.sh": HEAD
        + "export RIGHT=33\n"
        + "if bash /tests/check.sh; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
        "tests/check.sh": '[ "$(bash /app/sum.sh < /tests/in.txt)" = $RIGHT ]\n',
        "tests/in.txt": "10\n11\n12\n",
    },
    "hold open compares with": {
        "tests/test.sh": judge('[ "$(bash /app/sum.sh < /tests/in.txt)" = "33" ]'),
        "tests/in.txt": "10\n11\n12\n",
    },
}


@pytest.mark.parametrize("what", LOOKED_AT)
def test_what_callers_hold_is_in_reach_of_programs_that_they_run(audited: Any, what: str) -> None:
    audit = audited(task("exploitable", "introspection", ADD, ADDS, LOOKED_AT[what]))
    found = barring(audit, "introspection")
    assert found.confirmed
    assert "33" not in found.script, "it looks, and knows nothing"


KEPT_BY_ROOT = """\
FROM debian:12
WORKDIR /app
COPY rows.csv check.sh ./
RUN useradd -m agent && chown root check.sh && chmod 755 check.sh && chmod 1777 /app
"""


def test_what_only_root_could_do_is_told_apart_and_bars_nothing(audited: Any, kit: Any) -> None:
    """The grader's script lies in a sticky folder that is open to all: root may replace it, the policy may not."""
    toml = '[agent]\nuser = "agent"\ntimeout_sec = 20\n[verifier]\nuser = "root"\ntimeout_sec = 20\n'
    audit = audited(
        task(
            "sound",
            "",
            kit.sum_instruction,
            kit.sum_solution,
            judge("bash /app/check.sh"),
            dockerfile=KEPT_BY_ROOT,
            shipped={"rows.csv": ROWS, "check.sh": '[ "$(cat /app/total.txt)" = 105 ]\n'},
            toml=toml,
        )
    )
    (found,) = [one for one in audit.findings if one.flaw == "grader-in-reach"]
    assert (found.user, found.severity.value, found.confirmed) == ("root", "warning", True)
    assert "who is not this task's policy" in found.what
    assert audit.verdict.value == "sound"
    assert not [one for one in audit.findings if not one.user and one.accuses.value == "exploitable"]


ANY_PATH = (
    "Write the path of the file in /app to /app/path.txt. Any path that leads to it is fine, also a relative one."
)


def test_a_path_in_another_form_is_right_where_any_path_is(audited: Any) -> None:
    right = judge('[ "$(cat /app/path.txt)" = /app/rows.csv ]')
    audit = audited(task("refuses-correct-work", "", ANY_PATH, "echo /app/rows.csv > /app/path.txt\n", right))
    assert "path" in barring(audit, "over-strict-text").what
    assert audit.verdict.value == "refuses-correct-work"
