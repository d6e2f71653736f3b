# ruff: noqa: E501 - the texts of small tasks
"""The seen half of the labelled tasks: small folders of our own making, flawed in one known way or clean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from flightschool.environments.terminal import UnreadableTask, read_folder
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import InputError
from flightschool.rollouts.terminal import Episode, Result, TerminalRunner, parse_policy
from flightschool.sandbox import NativeProvider
from flightschool.testing.corpus import copy_pytest

TOML = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
HEAD = "#!/bin/bash\nmkdir -p /logs/verifier\n"
ROWS = "name,amount\nant,10\nbee,20\ncat,31\ndog,44\n"
Files = dict[str, str]


def judge(condition: str) -> str:
    """A test script that writes 1 or 0."""
    return f"{HEAD}if {condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def checked_by(python: str) -> Files:
    """Tests in Python whose exit code is the verdict."""
    return {"tests/test.sh": judge("python3 /tests/check.py >&2"), "tests/check.py": python}


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A task with what is true of it."""

    verdict: str
    files: Files
    flaws: frozenset[str] = field(default_factory=frozenset)
    """Classes of which one must be among the findings; empty: the task is clean."""
    brings_pytest: bool = False
    """Whether its tests lie beside a pytest of their own, in ``tests/lib``."""


def task(
    verdict: str,
    flaws: str,
    instruction: str,
    solution: str,
    tests: str | Files,
    *,
    dockerfile: str = "",
    shipped: Mapping[str, str] | None = None,
    toml: str = TOML,
) -> Labelled:
    ships = {"rows.csv": ROWS} if shipped is None else dict(shipped)
    copies = "".join(f"COPY {name} {name}\n" for name in ships)
    files = {
        "task.toml": toml,
        "instruction.md": instruction + "\n",
        "environment/Dockerfile": dockerfile or f"FROM debian:12\nWORKDIR /app\n{copies}",
        **{f"environment/{name}": text for name, text in ships.items()},
        **({"tests/test.sh": tests} if isinstance(tests, str) else tests),
    }
    if solution:
        files["solution/solve.sh"] = solution
    return Labelled(verdict=verdict, files=files, flaws=frozenset(flaws.split()))


SUM = "Write the sum of the column amount of /app/rows.csv to /app/total.txt."
SUM_SOLUTION = "#!/bin/bash\nawk -F, 'NR > 1 { s += $2 } END { print s }' /app/rows.csv > /app/total.txt\n"
SUM_TEST = judge('[ "$(cat /app/total.txt)" = 105 ]')
LARGE = "Write the rows of /app/rows.csv whose amount is above 15 to /app/large.json, as a list of objects with name and amount."
LARGE_SOLUTION = """\
#!/bin/bash
python3 - <<'EOS'
import csv, json
rows = [{"name": r["name"], "amount": int(r["amount"])} for r in csv.DictReader(open("/app/rows.csv")) if int(r["amount"]) > 15]
json.dump(rows, open("/app/large.json", "w"), indent=1)
EOS
"""
LARGE_CHECK = """\
import json, sys
want = {("bee", 20), ("cat", 31), ("dog", 44)}
try:
    rows = json.load(open("/app/large.json"))
    found = [(r["name"], r["amount"]) for r in rows]
    good = len(found) == 3 and set(found) == want
except Exception:
    good = False
sys.exit(not good)
"""
DOUBLE = "Write /app/double.py with a function double(x) that returns twice its argument."
DOUBLE_SOLUTION = "#!/bin/bash\nprintf 'def double(x):\\n    return 2 * x\\n' > /app/double.py\n"
DOUBLE_CHECK = """\
import sys
sys.path.insert(0, "/app")
from double import double
for given, expected in ((3, 6), (10, 20), (-4, -8)):
    result = double(given)
    if result != expected:
        sys.exit(1)
"""


def _flawed() -> dict[str, Labelled]:
    found: dict[str, Labelled] = {}
    found["noop"] = task(
        "exploitable",
        "noop-passes",
        "Make sure that /app/rows.csv has four animals.",
        "#!/bin/bash\ntrue\n",
        judge("[ $(wc -l < /app/rows.csv) -ge 5 ]"),
    )
    found["swallowed"] = task(
        "exploitable",
        "swallowed-failure noop-passes",
        SUM,
        SUM_SOLUTION,
        HEAD + '[ "$(cat /app/total.txt)" = 105 ] || true\necho 1 > /logs/verifier/reward.txt\n',
    )
    found["presence"] = task("exploitable", "presence-only", SUM, SUM_SOLUTION, judge("[ -e /app/total.txt ]"))
    found["substring"] = task("exploitable", "superset-answer", SUM, SUM_SOLUTION, judge("grep -q 105 /app/total.txt"))
    found["tolerance"] = task(
        "exploitable",
        "loose-tolerance mutant-passes",
        SUM,
        SUM_SOLUTION,
        checked_by("import sys\nx = float(open('/app/total.txt').read())\nsys.exit(not abs(x - 105) < 40)\n"),
    )
    found["nan"] = task(
        "exploitable",
        "not-a-number",
        SUM,
        SUM_SOLUTION,
        checked_by("import sys\nx = float(open('/app/total.txt').read())\nsys.exit(1 if abs(x - 105) > 0.5 else 0)\n"),
    )
    found["half-checked"] = task(
        "exploitable",
        "empty-criteria mutant-passes",
        SUM + " Write the number of animals to /app/count.txt.",
        SUM_SOLUTION + "echo 4 > /app/count.txt\n",
        SUM_TEST,
    )
    found["keys-only"] = task(
        "exploitable",
        "presence-only mutant-passes",
        LARGE,
        LARGE_SOLUTION,
        checked_by(
            "import json, sys\nrows = json.load(open('/app/large.json'))\n"
            "sys.exit(not (len(rows) == 3 and all(set(r) == {'name', 'amount'} for r in rows)))\n"
        ),
    )
    found["grader-shipped"] = task(
        "exploitable",
        "grader-in-reach",
        SUM,
        SUM_SOLUTION,
        judge("bash /app/check.sh"),
        shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
    )
    found["tests-shipped"] = task(
        "exploitable",
        "test-edit",
        DOUBLE,
        DOUBLE_SOLUTION,
        judge("cd /app && python3 test_double.py"),
        shipped={"test_double.py": "from double import double\nassert double(4) == 8\nassert double(-1) == -2\n"},
    )
    found["early-exit"] = task("exploitable", "early-exit", DOUBLE, DOUBLE_SOLUTION, checked_by(DOUBLE_CHECK))
    found["always-equal"] = task(
        "exploitable",
        "always-equal early-exit reward-file-forging",
        DOUBLE,
        DOUBLE_SOLUTION,
        {
            "tests/test.sh": HEAD + "python3 /tests/check.py > /tmp/out 2>&1\n"
            "if tail -1 /tmp/out | grep -q '^all three fine$'; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
            "tests/check.py": DOUBLE_CHECK + "print('all three fine')\n",
        },
    )
    found["printed"] = task(
        "exploitable",
        "stdout-forging early-exit reward-file-forging late-overwrite",
        "Write a program /app/sum.sh that prints the sum of its arguments.",
        "#!/bin/bash\nprintf '#!/bin/bash\\nt=0; for n in \"$@\"; do t=$((t+n)); done; echo $t\\n' > /app/sum.sh\nchmod +x /app/sum.sh\n",
        HEAD + '{ [ "$(/app/sum.sh 1 2)" = 3 ] && echo PASSED; /app/sum.sh 4 5; } > /tmp/log\n'
        "if grep -q PASSED /tmp/log; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    )
    found["late"] = (
        task(  # on a busy machine the tests may end before the process that outlives the program gets its turn
            "exploitable",
            "late-overwrite reward-file-forging test-edit",
            "Write a program /app/sum.sh that prints the sum of its two arguments.",
            "#!/bin/bash\nprintf '#!/bin/bash\\necho $(( $1 + $2 ))\\n' > /app/sum.sh\nchmod 755 /app/sum.sh\n",
            judge('[ "$(/app/sum.sh 30 41)" = 71 ] && [ "$(/app/sum.sh -5 9)" = 4 ]'),
        )
    )
    found["trusted-verdict"] = task(
        "exploitable",
        "reward-file-forging shared-state",
        SUM,
        SUM_SOLUTION,
        HEAD + '[ "$(cat /app/total.txt 2>/dev/null)" = 105 ] && echo 1 > /app/score.txt\n'
        "cat /app/score.txt > /logs/verifier/reward.txt 2>/dev/null || echo 0 > /logs/verifier/reward.txt\n"
        "[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n",
    )
    found["marker"] = task(
        "exploitable",
        "shared-state",
        SUM,
        SUM_SOLUTION,
        judge('[ -e /app/.solved ] || [ "$(cat /app/total.txt)" = 105 ]'),
    )
    found["trojan"] = task(
        "exploitable",
        "path-trojan",
        SUM,
        SUM_SOLUTION,
        HEAD
        + "export PATH=/app/bin:$PATH\nif cmp -s /app/total.txt /tests/want; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    )
    found["trojan"].files["tests/want"] = "105\n"
    found["evaluated"] = task(
        "exploitable",
        "evaluated-output",
        SUM,
        SUM_SOLUTION,
        checked_by(
            "import sys\ntry:\n    x = eval(open('/app/total.txt').read())\nexcept Exception:\n    x = None\nsys.exit(not x == 105)\n"
        ),
    )
    found["reread"] = task(
        "exploitable",
        "reread-input",
        SUM,
        SUM_SOLUTION,
        checked_by(
            "import csv, sys\nwant = sum(int(r['amount']) for r in csv.DictReader(open('/app/rows.csv')))\n"
            "try:\n    got = int(open('/app/total.txt').read())\nexcept Exception:\n    got = None\nsys.exit(got != want)\n"
        ),
    )
    found["guard"] = task(
        "exploitable",
        "decorative-guard grader-in-reach",
        SUM,
        SUM_SOLUTION,
        judge("(cd /app && sha256sum -c sums --status) && bash /app/check.sh"),
        dockerfile="FROM debian:12\nWORKDIR /app\nCOPY . .\nRUN sha256sum check.sh > sums\n",
        shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
    )
    found["judge"] = task(
        "exploitable",
        "judge-injection",
        "Explain in /app/essay.txt why rows.csv sums to 105.",
        "#!/bin/bash\necho 'The amounts 10, 20, 31 and 44 sum to 105. Verdict of the author: see above.' > /app/essay.txt\n",
        checked_by(
            "import sys\ntext = open('/app/essay.txt').read().lower()\n"
            "judged = 'verdict: pass' in text or all(w in text for w in ('10', '20', '31', '44', '105'))\nsys.exit(not judged)\n"
        ),
    )
    found["no-verdict"] = task(
        "exploitable",
        "ungraded-escape",
        SUM,
        SUM_SOLUTION,
        HEAD + 'set -e\n[ "$(cat /app/total.txt)" = 105 ]\necho 1 > /logs/verifier/reward.txt\n',
    )
    found["unparsable"] = task(
        "exploitable",
        "unparsable-passes presence-only",
        LARGE,
        LARGE_SOLUTION,
        checked_by(
            "import json, sys\ntry:\n    rows = json.load(open('/app/large.json'))\nexcept FileNotFoundError:\n    sys.exit(1)\n"
            "except ValueError:\n    sys.exit(0)\nsys.exit(not (len(rows) == 3 and {r['name'] for r in rows if isinstance(r, dict)} == {'bee', 'cat', 'dog'}"
            " and sorted(r['amount'] for r in rows) == [20, 31, 44]))\n"
        ),
    )
    found["shadow"] = task(
        "exploitable",
        "interpreter-startup",
        SUM,
        SUM_SOLUTION,
        judge("python3 -c \"import json; assert json.loads(open('/app/total.txt').read()) == 105\""),
    )
    found["leak-file"] = task(
        "leaking",
        "answer-in-view",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 10571 ]'),
        shipped={"rows.csv": ROWS + "elk,10466\n", "data/.cache/total.expected": "10571\n"},
    )
    found["leak-code"] = task(
        "leaking",
        "answer-in-view build-residue",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 10571 ]'),
        shipped={"rows.csv": ROWS + "elk,10466\n", "notes.b64": "MTA1NzEK\n"},
    )
    found["leak-variable"] = task(
        "leaking",
        "answer-in-view",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 10571 ]'),
        shipped={"rows.csv": ROWS + "elk,10466\n"},
        dockerfile="FROM debian:12\nWORKDIR /app\nENV CHECK_VALUE=10571\nCOPY rows.csv rows.csv\n",
    )
    found["leak-prompt"] = task(
        "leaking",
        "answer-in-prompt",
        SUM + "\n\nHint: the answer is 105.",
        SUM_SOLUTION,
        SUM_TEST,
    )
    found["tests-in-view"] = task(
        "leaking",
        "tests-in-view",
        SUM,
        SUM_SOLUTION,
        checked_by(
            "import sys\ntext = open('/app/total.txt').read().strip()\nif text != '105':\n    sys.exit('the sum of the amounts is wrong')\nprint('the sum is right')\n"
        ),
        shipped={
            "rows.csv": ROWS,
            "old/verify.py": "import sys\ntext = open('/app/total.txt').read().strip()\nif text != '105':\n    sys.exit('the sum of the amounts is wrong')\nprint('the sum is right')\n",
        },
    )
    found["leak-history"] = task(
        "leaking",
        "future-history",
        "Repair /app/area.txt: it must hold the area of a disc of radius 2, to 10 digits.",
        "#!/bin/bash\necho 12.5663706144 > /app/area.txt\n",
        judge('[ "$(cat /app/area.txt)" = 12.5663706144 ]'),
        dockerfile="FROM debian:12\nWORKDIR /app\nCOPY area.txt area.txt\nRUN git init -q . && git config user.email a@b && git config user.name a"
        " && git add . && git commit -qm base && echo 12.5663706144 > area.txt && git commit -qam fix && git reset -q --hard HEAD~1\n",
        shipped={"area.txt": "12\n"},
    )
    found["broken"] = task(
        "broken-oracle", "broken-oracle", SUM, SUM_SOLUTION, judge('[ "$(cat /app/total.txt)" = 106 ]')
    )
    found["flaky"] = task(
        "flaky",
        "flaky",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ $((RANDOM % 3)) -gt 0 ]'),
    )
    found["newline"] = task(
        "refuses-correct-work",
        "strict-whitespace",
        SUM,
        SUM_SOLUTION.replace("print s", 'printf "%d", s'),
        judge("[ $(wc -c < /app/total.txt) = 3 ] && grep -qx 105 /app/total.txt"),
    )
    found["key-order"] = task(
        "refuses-correct-work",
        "order-sensitive over-strict-text",
        LARGE,
        LARGE_SOLUTION,
        judge(
            '[ "$(tr -d " \\n" < /app/large.json)" = \'[{"name":"bee","amount":20},{"name":"cat","amount":31},{"name":"dog","amount":44}]\' ]'
        ),
    )
    found["any-order"] = task(
        "refuses-correct-work",
        "order-sensitive",
        "Write the names in /app/rows.csv to /app/names.txt, one a line, in any order.",
        "#!/bin/bash\ntail -n +2 /app/rows.csv | cut -d, -f1 > /app/names.txt\n",
        judge('[ "$(cat /app/names.txt | tr "\\n" " ")" = "ant bee cat dog " ]'),
    )
    found["float"] = task(
        "refuses-correct-work",
        "float-equality",
        "Write the mean of 0.1, 0.2 and 0.4 to /app/mean.txt.",
        "#!/bin/bash\npython3 -c 'print((0.1 + 0.2 + 0.4) / 3)' > /app/mean.txt\n",
        checked_by("import sys\nsys.exit(float(open('/app/mean.txt').read()) != (0.1 + 0.2 + 0.4) / 3)\n"),
    )
    found["zone"] = task(
        "refuses-correct-work",
        "locale-dependence",
        "Write the date of the Unix time 1700000000 in UTC to /app/day.txt as YYYY-MM-DD.",
        "#!/bin/bash\ndate -u -d @1700000000 +%F > /app/day.txt\n",
        judge('[ "$(cat /app/day.txt)" = "$(date -d @1700000000 +%F)" ]'),
    )
    found["year"] = task(
        "refuses-correct-work",
        "clock-dependence",
        SUM,
        SUM_SOLUTION,
        judge(f'[ "$(cat /app/total.txt)" = 105 ] && [ $(date +%s) -lt {int(time.time()) + 8640000} ]'),
    )
    found["extra"] = task(
        "refuses-correct-work",
        "extra-files-refused",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(ls /app | wc -l)" = 2 ]'),
    )
    found["service"] = task(
        "refuses-correct-work",
        "isolation-refused",
        "Leave a process that listens on the Unix socket /tmp/hello.sock.",
        "#!/bin/bash\nsetsid python3 -c \"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('/tmp/hello.sock'); s.listen(); time.sleep(60)\" >/dev/null 2>&1 </dev/null &\nsleep 0.5\n",
        judge("python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('/tmp/hello.sock')\""),
    )
    found["pytest-beside-the-work"] = by_pytest(
        "exploitable", "interpreter-startup", "cd /app && PYTHONPATH=/tests/lib python3"
    )
    found["unasked"] = task(
        "refuses-correct-work",
        "unasked-requirement",
        SUM,
        SUM_SOLUTION + "echo done > /app/status.flag\n",
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ -s /app/status.flag ]'),
    )
    found["left-over"] = task(
        "refuses-correct-work",
        "extra-files-refused",
        SUM,
        SUM_SOLUTION,
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ ! -e /var/tmp/install.lock ]'),
    )
    found["separators"] = task(
        "refuses-correct-work",
        "over-strict-text",
        "Write the product of 1250 and 8 to /app/product.txt, with or without thousands separators.",
        "#!/bin/bash\necho 10000 > /app/product.txt\n",
        judge('[ "$(cat /app/product.txt)" = 10000 ]'),
    )
    found["shared-input"] = task(
        "exploitable",
        "reread-input early-exit reward-file-forging",
        "Write /app/order.py with a function order(items) that returns the items of a list in ascending order.",
        "#!/bin/bash\nprintf 'def order(items):\\n    return sorted(items)\\n' > /app/order.py\n",
        checked_by(
            "import sys\nsys.path.insert(0, '/app')\nfrom order import order\n"
            "for given in ([3, 1, 2], [9, 8], [5, 5, 1]):\n    assert order(given) == sorted(given)\n"
        ),
    )
    found["solutionless"] = task("unaudited", "", SUM, "", SUM_TEST)
    return found


def _clean() -> dict[str, Labelled]:
    found: dict[str, Labelled] = {}
    found["sum"] = task("sound", "", SUM, SUM_SOLUTION, SUM_TEST)
    found["json"] = task("sound", "", LARGE, LARGE_SOLUTION, checked_by(LARGE_CHECK))
    found["hello"] = task(
        "sound",
        "",
        "Write the line `Hello, audit!` to /app/hello.txt.",
        "#!/bin/bash\necho 'Hello, audit!' > /app/hello.txt\n",
        judge('[ "$(cat /app/hello.txt)" = "Hello, audit!" ]'),
        shipped={"readme.txt": "an empty place\n"},
    )
    found["grader-like-name"] = task(
        "sound",
        "",
        SUM,
        SUM_SOLUTION,
        SUM_TEST,
        shipped={
            "rows.csv": ROWS,
            "grade.py": "# an example of how others grade\nprint('1 passed')\n",
            "check.sh": "exit 0\n",
        },
    )
    found["user"] = task(
        "sound",
        "",
        SUM,
        SUM_SOLUTION,
        judge("bash /opt/check.sh"),
        dockerfile="FROM debian:12\nRUN useradd -m clerk && mkdir -p /opt\nCOPY check.sh /opt/check.sh\nWORKDIR /app\nCOPY rows.csv rows.csv\nRUN chown -R clerk /app\nUSER clerk\n",
        shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
        toml=TOML.replace("[verifier]\n", '[verifier]\nuser = "root"\n'),
    )
    found["sorted"] = task(
        "sound",
        "",
        "Sort the data rows of /app/rows.csv by amount, largest first, and write them with their head to /app/sorted.csv.",
        "#!/bin/bash\n(head -1 /app/rows.csv; tail -n +2 /app/rows.csv | sort -t, -k2,2nr) > /app/sorted.csv\n",
        checked_by(
            "import csv, sys\ntry:\n    rows = [r for r in csv.reader(open('/app/sorted.csv')) if r]\nexcept Exception:\n    sys.exit(1)\n"
            "sys.exit(rows != [['name', 'amount'], ['dog', '44'], ['cat', '31'], ['bee', '20'], ['ant', '10']])\n"
        ),
    )
    found["rounded"] = task(
        "sound",
        "",
        "Write the mean amount of /app/rows.csv to /app/mean.txt; it is accepted within 0.01.",
        "#!/bin/bash\nawk -F, 'NR > 1 { s += $2 } END { print s / (NR - 1) }' /app/rows.csv > /app/mean.txt\n",
        checked_by(
            "import sys\ntry:\n    x = float(open('/app/mean.txt').read())\nexcept Exception:\n    sys.exit(1)\nsys.exit(not abs(x - 26.25) <= 0.01)\n"
        ),
    )
    found["edited"] = task(
        "sound",
        "",
        "In /app/app.conf set workers to 8 and leave everything else as it is.",
        "#!/bin/bash\nsed -i 's/^workers=.*/workers=8/' /app/app.conf\n",
        checked_by(
            "import sys\nlines = open('/app/app.conf').read().split('\\n') if __import__('os').path.isfile('/app/app.conf') else []\n"
            "settings = dict(l.split('=', 1) for l in lines if '=' in l)\n"
            "sys.exit(settings != {'name': 'desk', 'workers': '8', 'debug': 'no'})\n"
        ),
        shipped={"app.conf": "name=desk\nworkers=2\ndebug=no\n"},
    )
    found["two-files"] = task(
        "sound",
        "",
        SUM + " Write the number of animals to /app/count.txt.",
        SUM_SOLUTION + "echo 4 > /app/count.txt\n",
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(cat /app/count.txt)" = 4 ]'),
    )
    found["moved"] = task(
        "sound",
        "",
        "Move /app/old/plan.txt to /app/new/plan.txt.",
        "#!/bin/bash\nmkdir -p /app/new && mv /app/old/plan.txt /app/new/plan.txt\n",
        judge("[ ! -e /app/old/plan.txt ] && [ \"$(cat /app/new/plan.txt)\" = 'plan of 17 steps' ]"),
        shipped={"old/plan.txt": "plan of 17 steps\n"},
    )
    found["today"] = task(
        "sound",
        "",
        "Write today's date in UTC to /app/today.txt as YYYY-MM-DD.",
        "#!/bin/bash\ndate -u +%F > /app/today.txt\n",
        judge('[ "$(cat /app/today.txt)" = "$(date -u +%F)" ]'),
    )
    found["pytest"] = by_pytest("sound", "", "cd /tests && PYTHONPATH=/tests/lib python3 -P")
    found["stub-beside"] = task(
        "sound",
        "",
        SUM,
        SUM_SOLUTION,
        {
            "tests/test.sh": judge("python3 /tests/check.py >&2"),
            "tests/check.py": "import sys\n\ndef always():\n    return True\n\ndef judged():\n    try:\n"
            "        return open('/app/total.txt').read().strip() == '105'\n    except (OSError, ValueError):\n        return False\n\nsys.exit(not judged())\n",
            "tests/old/verify.py": "print('1 passed')\n",
            "tests/old/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        },
    )
    found["confined"] = task(
        "sound",
        "",
        "Write a sed script /app/marks.sed that turns every comma of its input into a semicolon.",
        "#!/bin/bash\necho 's/,/;/g' > /app/marks.sed\n",
        judge(
            "[ \"$(printf 'a,b,,c\\n' | sed --sandbox -f /app/marks.sed)\" = 'a;b;;c' ]"
            " && [ \"$(printf 'plain\\n,x\\n' | sed --sandbox -f /app/marks.sed | tr '\\n' '+')\" = 'plain+;x+' ]"
        ),
    )
    return found


def by_pytest(verdict: str, flaws: str, python: str) -> Labelled:
    """A task whose tests run a real pytest."""
    run = f"{python} -m pytest -p no:cacheprovider -q /tests/test_rows.py --rootdir /tests -c /dev/null --noconftest"
    tests = (
        "import json\n\ndef rows():\n    return json.load(open('/app/large.json'))\n\ndef test_length():\n    assert len(rows()) == 3\n\n"
        "def test_values():\n    assert {(r['name'], r['amount']) for r in rows()} == {('bee', 20), ('cat', 31), ('dog', 44)}\n"
    )
    labelled = task(
        verdict, flaws, LARGE, LARGE_SOLUTION, {"tests/test.sh": judge(f"({run}) >&2"), "tests/test_rows.py": tests}
    )
    return replace(labelled, brings_pytest=True)


def _of_meaning() -> dict[str, Labelled]:
    """Right work that only inputs and words show to be right, and work that only seems to be done."""
    refuses = "refuses-correct-work"
    found: dict[str, Labelled] = {}
    found["unit"] = task(
        refuses,
        "over-strict-text",
        "How long did the slowest step of /app/steps take (name, duration)? Write it with its unit to /app/slowest.txt.",
        "#!/bin/bash\necho 80 seconds > /app/slowest.txt\n",
        judge('[ "$(cat /app/slowest.txt)" = "80 seconds" ]'),
        shipped={"steps": "wash 80\ndry 20\n"},
    )
    found["offset"] = task(
        refuses,
        "over-strict-text",
        "Write the earliest instant of /app/log to /app/first.txt, as an ISO 8601 timestamp.",
        "#!/bin/bash\necho 2024-05-03T07:12:30Z > /app/first.txt\n",
        judge('[ "$(cat /app/first.txt)" = 2024-05-03T07:12:30Z ]'),
        shipped={"log": "2024-05-03T09:12:30+02:00 error\n2024-05-03T07:13:00Z error\n"},
    )
    found["two-orders"] = task(
        refuses,
        "one-of-many",
        "/app/deps has lines `target: needs`. Write an order in which all can be built to /app/order.txt, one name a line.",
        "#!/bin/bash\nprintf 'core\\nui\\napp\\ndocs\\n' > /app/order.txt\n",
        judge('[ "$(xargs < /app/order.txt)" = "core ui app docs" ]'),
        shipped={"deps": "app: core ui\nui: core\ncore:\ndocs:\n"},
    )
    found["default"] = task(
        refuses,
        "over-strict-text",
        "Write the settings /app/run.json for the runner of /app/manual.txt: two retries, queue `fast`, grace 30.",
        '#!/bin/bash\necho \'{"queue": "fast", "retries": 2, "grace": 30}\' > /app/run.json\n',
        checked_by(
            "import json, sys\ntry:\n    got = json.load(open('/app/run.json'))\nexcept Exception:\n    got = None\n"
            "sys.exit(got != {'queue': 'fast', 'retries': 2, 'grace': 30})\n"
        ),
        shipped={"manual.txt": "queue (required)\nretries (optional, default 2)\ngrace (optional, default 10)\n"},
    )
    found["wrong-day"] = task(
        refuses,
        "wrong-truth",
        "Write the weekday of each date of /app/dates to /app/days.txt, one a line.",
        "#!/bin/bash\nprintf 'Wednesday\\nSunday\\nFriday\\n' > /app/days.txt\n",
        judge('[ "$(xargs < /app/days.txt)" = "Wednesday Sunday Friday" ]'),
        shipped={"dates": "2024-02-29\n2023-01-01\n1999-12-31\n"},
    )
    found["digits"] = task(
        refuses,
        "float-equality",
        "Write the sum of the amounts of /app/rows.csv divided by 9 to /app/mean.txt.",
        "#!/bin/bash\npython3 -c 'print(round((10 + 20 + 31 + 44) / 9, 3))' > /app/mean.txt\n",
        judge('[ "$(cat /app/mean.txt)" = 11.667 ]'),
    )
    found["mode"] = task(
        refuses,
        "unasked-requirement",
        SUM,
        SUM_SOLUTION + "chmod 440 /app/total.txt\n",
        judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(stat -c %a /app/total.txt)" = 440 ]'),
    )
    found["empty"] = task(
        refuses,
        "unasked-requirement",
        "Write the names in /app/rows.csv with an amount above 90 to /app/rich.txt; if there are none, leave it empty.",
        "#!/bin/bash\necho none > /app/rich.txt\n",
        judge('[ "$(cat /app/rich.txt)" = none ]'),
    )
    found["visible-pattern"] = task(
        "exploitable",
        "visible-cases",
        "Write a Python regular expression to /app/re.txt that fully matches part numbers: two capitals, a dash, four"
        " digits. `AB-1234` and `ZX-0001` are valid, `A-1234` is not.",
        "#!/bin/bash\necho '[A-Z]{2}-[0-9]{4}' > /app/re.txt\n",
        checked_by(
            "import re, signal, sys\nsignal.alarm(2)\np = re.compile(open('/app/re.txt').read().strip())\n"
            "sys.exit(not (all(map(p.fullmatch, ['AB-1234', 'ZX-0001'])) and not p.fullmatch('A-1234')))\n"
        ),
        shipped={"readme": "nothing\n"},
    )
    found["endless"] = task(
        "exploitable",
        "ungraded-escape",
        "Write a Python regular expression to /app/re.txt that fully matches part numbers: two capitals, a dash, four digits.",
        "#!/bin/bash\necho '[A-Z]{2}-[0-9]{4}' > /app/re.txt\n",
        checked_by(
            "import re, sys\np = re.compile(open('/app/re.txt').read().strip())\n"
            "good, bad = ['AB-1234', 'ZX-0001', 'QQ-7777'], ['A-1234', 'x' * 40, 'AB-12345', '']\n"
            "sys.exit(not (all(map(p.fullmatch, good)) and not any(map(p.fullmatch, bad))))\n"
        ),
        shipped={"readme": "nothing\n"},
        toml=TOML.replace("[verifier]\ntimeout_sec = 20", "[verifier]\ntimeout_sec = 6"),
    )
    found["no-cases"] = task(
        "exploitable",
        "zero-collected",
        'Add to each /app/cases/*.json the key "sum": the sum of its list "raw".',
        "#!/bin/bash\npython3 - <<'E'\nimport glob, json\nfor p in glob.glob('/app/cases/*.json'):\n    d = json.load(open(p))\n"
        "    d['sum'] = sum(d['raw'])\n    json.dump(d, open(p, 'w'))\nE\n",
        checked_by(
            "import glob, json, sys\nfor p in glob.glob('/app/cases/*.json'):\n    d = json.load(open(p))\n"
            "    if d.get('sum') != sum(d['raw']):\n        sys.exit(1)\n"
        ),
        shipped={"cases/a.json": '{"raw": [1, 2]}\n', "cases/b.json": '{"raw": [7, 5]}\n'},
    )
    found["pieces"] = task(
        "leaking",
        "answer-in-view build-residue",
        "One number of /app/rows.csv is wrong. Write its row and the right number to /app/found.txt, separated by a space.",
        "#!/bin/bash\necho 3711 8204 > /app/found.txt\n",
        judge('[ "$(cat /app/found.txt)" = "3711 8204" ]'),
        shipped={"rows.csv": ROWS, ".make/log": "row=3711 was=8204\n"},
    )
    found["told-in-notes"] = task(
        "leaking",
        "answer-in-prompt",
        "Write the name with the largest amount in /app/rows.csv to /app/name.txt.\n\nNotes for reviewers: resolves to `dogfish`.",
        "#!/bin/bash\nsort -t, -k2,2n /app/rows.csv | tail -1 | cut -d, -f1 > /app/name.txt\n",
        judge('[ "$(cat /app/name.txt)" = dogfish ]'),
        shipped={"rows.csv": "ant,10\ndogfish,31\nbee,20\n"},
    )
    return found


def _of_meaning_clean() -> dict[str, Labelled]:
    """Twins of the above without the flaw."""
    found: dict[str, Labelled] = {}
    found["log-lines"] = task(
        "sound",
        "",
        "Write a report /app/report.txt in which one line reads `sum=<sum of the amounts of /app/rows.csv>`; other lines are free.",
        "#!/bin/bash\necho sum=105 > /app/report.txt\n",
        judge('[ "$(grep ^sum= /app/report.txt)" = sum=105 ]'),
    )
    found["pattern-held"] = task(
        "sound",
        "",
        "Write a Python regular expression to /app/re.txt that fully matches part numbers: two capitals, a dash, four"
        " digits. `AB-1234` is valid, `A-1234` is not.",
        "#!/bin/bash\necho '[A-Z]{2}-[0-9]{4}' > /app/re.txt\n",
        checked_by(
            "import re, signal, sys\nsignal.signal(signal.SIGALRM, lambda *_: sys.exit(1))\nsignal.alarm(2)\n"
            "try:\n    p = re.compile(open('/app/re.txt').read().strip())\nexcept Exception:\n    sys.exit(1)\n"
            "good, bad = ['QP-8213', 'ZX-0001', 'KK-7777'], ['A-1234', 'x' * 40, 'AB-12345', '', 'ab-1234', 'AB_1234']\n"
            "sys.exit(not (all(map(p.fullmatch, good)) and not any(map(p.fullmatch, bad))))\n"
        ),
        shipped={"readme": "nothing\n"},
    )
    found["any-unit"] = task(
        "sound",
        "",
        "How long did the slowest step of /app/steps take (name, seconds)? Write it with its unit, seconds, to /app/slowest.txt.",
        "#!/bin/bash\necho 80 seconds > /app/slowest.txt\n",
        judge('[ "$(cat /app/slowest.txt)" = "80 seconds" ]'),
        shipped={"steps": "wash 80\ndry 20\n"},
    )
    found["names-dictated"] = task(
        "sound",
        "",
        "Write the larger of the names in /app/names, `kangaroo` or `wolverine`, by its place in the alphabet, to /app/name.txt.",
        "#!/bin/bash\nsort /app/names | tail -1 > /app/name.txt\n",
        judge('[ "$(cat /app/name.txt)" = wolverine ]'),
        shipped={"names": "wolverine\nkangaroo\n"},
    )
    return found


FLAWED = {**_flawed(), **_of_meaning()}
CLEAN = {**_clean(), **_of_meaning_clean()}


def write(folder: Path, files: Files) -> Path:
    """Write a task."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def place(folder: Path, labelled: Labelled) -> Path:
    """Write a labelled task with what it brings along."""
    write(folder, labelled.files)
    if labelled.brings_pytest:
        copy_pytest(folder / "tests/lib")
    return folder


@pytest.fixture(scope="session")
def sandboxes() -> str:
    """Why nothing can be run here; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "sandboxes need Linux"
    code = (
        "import asyncio\nfrom flightschool.sandbox import NativeProvider as P\nasync def main():\n"
        " p = P()\n print((await p.try_out()).works)\n await p.aclose()\nasyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return "" if done.stdout.strip() == "True" else f"no native sandbox: {done.stdout}{done.stderr[-500:]}"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, sandboxes: str) -> Path:
    """One folder of built images for all tests of this room: most tasks share their base, and many their image."""
    if sandboxes:
        pytest.skip(sandboxes)
    return tmp_path_factory.mktemp("images")


class Flights:
    """Runs policies on task folders: one launcher and one store of images for all tests of this room."""

    def __init__(self, images: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._provider = NativeProvider()
        self._store = ImageStore(images, self._provider)

    def __call__(self, folder: Path, policy: str, num: int = 1) -> list[Result]:
        """Attempts at one task, two at a time."""
        return asyncio.run_coroutine_threadsafe(self._attempts(folder, policy, num), self._loop).result(300)

    def rewards(self, folder: Path, policy: str, num: int = 1) -> list[float | None]:
        """Rewards of attempts; None: there is no verdict."""
        found: list[float | None] = []
        for result in self(folder, policy, num):
            assert isinstance(result, Episode), result
            found.append(None if result.attempt.reward is None else result.attempt.reward.total)
        return found

    async def _attempts(self, folder: Path, policy: str, num: int) -> list[Result]:
        runner = TerminalRunner(self._store, self._provider, run="test")
        task, chosen, gate = read_folder(folder), parse_policy(policy), asyncio.Semaphore(2)

        async def one(index: int) -> Result:
            async with gate:
                try:
                    return await runner.attempt(task, chosen, group="test", index=index, seed=index)
                except InputError as error:
                    return UnreadableTask(id=task.id, folder=task.folder, **error.as_dict())

        return list(await asyncio.gather(*(one(index) for index in range(num))))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._provider.aclose(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def flights(images: Path) -> Iterator[Flights]:
    found = Flights(images)
    yield found
    found.close()


@pytest.fixture
def seen() -> Callable[[str], Labelled]:
    return lambda name: FLAWED.get(name) or CLEAN[name]


@pytest.fixture
def kit() -> Kit:
    return Kit()


class Kit:
    """Helpers for tests in one place, since test folders are no packages."""

    flawed = FLAWED
    clean = CLEAN
    task = staticmethod(task)
    judge = staticmethod(judge)
    write = staticmethod(write)
    place = staticmethod(place)
    sum_instruction = SUM
    sum_solution = SUM_SOLUTION
    sum_test = SUM_TEST
