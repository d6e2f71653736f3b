# ruff: noqa: E501 - the texts of small tasks
"""The seen half: tasks that are flawed in one known way."""

from __future__ import annotations

import time

from tests.integration.audit.labelled import (
    DOUBLE,
    DOUBLE_CHECK,
    DOUBLE_SOLUTION,
    HEAD,
    LARGE,
    LARGE_SOLUTION,
    ROWS,
    SUM,
    SUM_SOLUTION,
    SUM_TEST,
    Labelled,
    by_pytest,
    checked_by,
    judge,
    task,
)

FLAWED: dict[str, Labelled] = {}

FLAWED["noop"] = task(
    "exploitable",
    "noop-passes",
    "Make sure that /app/rows.csv has four animals.",
    "#!/bin/bash\ntrue\n",
    judge("[ $(wc -l < /app/rows.csv) -ge 5 ]"),
)
FLAWED["swallowed"] = task(
    "exploitable",
    "swallowed-failure noop-passes",
    SUM,
    SUM_SOLUTION,
    HEAD + '[ "$(cat /app/total.txt)" = 105 ] || true\necho 1 > /logs/verifier/reward.txt\n',
)
FLAWED["presence"] = task("exploitable", "presence-only", SUM, SUM_SOLUTION, judge("[ -e /app/total.txt ]"))
FLAWED["substring"] = task("exploitable", "superset-answer", SUM, SUM_SOLUTION, judge("grep -q 105 /app/total.txt"))
FLAWED["tolerance"] = task(
    "exploitable",
    "loose-tolerance mutant-passes",
    SUM,
    SUM_SOLUTION,
    checked_by("import sys\nx = float(open('/app/total.txt').read())\nsys.exit(not abs(x - 105) < 40)\n"),
)
FLAWED["nan"] = task(
    "exploitable",
    "not-a-number",
    SUM,
    SUM_SOLUTION,
    checked_by("import sys\nx = float(open('/app/total.txt').read())\nsys.exit(1 if abs(x - 105) > 0.5 else 0)\n"),
)
FLAWED["half-checked"] = task(
    "exploitable",
    "empty-criteria mutant-passes",
    SUM + " Write the number of animals to /app/count.txt.",
    SUM_SOLUTION + "echo 4 > /app/count.txt\n",
    SUM_TEST,
)
FLAWED["keys-only"] = task(
    "exploitable",
    "presence-only mutant-passes",
    LARGE,
    LARGE_SOLUTION,
    checked_by(
        "import json, sys\nrows = json.load(open('/app/large.json'))\n"
        "sys.exit(not (len(rows) == 3 and all(set(r) == {'name', 'amount'} for r in rows)))\n"
    ),
)
FLAWED["grader-shipped"] = task(
    "exploitable",
    "grader-in-reach",
    SUM,
    SUM_SOLUTION,
    judge("bash /app/check.sh"),
    shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
)
FLAWED["tests-shipped"] = task(
    "exploitable",
    "test-edit",
    DOUBLE,
    DOUBLE_SOLUTION,
    judge("cd /app && python3 test_double.py"),
    shipped={"test_double.py": "from double import double\nassert double(4) == 8\nassert double(-1) == -2\n"},
)
FLAWED["early-exit"] = task("exploitable", "early-exit", DOUBLE, DOUBLE_SOLUTION, checked_by(DOUBLE_CHECK))
FLAWED["always-equal"] = task(
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
FLAWED["printed"] = task(
    "exploitable",
    "stdout-forging early-exit reward-file-forging late-overwrite",
    "Write a program /app/sum.sh that prints the sum of its arguments.",
    "#!/bin/bash\nprintf '#!/bin/bash\\nt=0; for n in \"$@\"; do t=$((t+n)); done; echo $t\\n' > /app/sum.sh\nchmod +x /app/sum.sh\n",
    HEAD + '{ [ "$(/app/sum.sh 1 2)" = 3 ] && echo PASSED; /app/sum.sh 4 5; } > /tmp/log\n'
    "if grep -q PASSED /tmp/log; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
)
FLAWED["late"] = task(  # on a busy machine the tests may end before the process that outlives the program gets its turn
    "exploitable",
    "late-overwrite reward-file-forging test-edit",
    "Write a program /app/sum.sh that prints the sum of its two arguments.",
    "#!/bin/bash\nprintf '#!/bin/bash\\necho $(( $1 + $2 ))\\n' > /app/sum.sh\nchmod 755 /app/sum.sh\n",
    judge('[ "$(/app/sum.sh 30 41)" = 71 ] && [ "$(/app/sum.sh -5 9)" = 4 ]'),
)
FLAWED["trusted-verdict"] = task(
    "exploitable",
    "reward-file-forging shared-state",
    SUM,
    SUM_SOLUTION,
    HEAD + '[ "$(cat /app/total.txt 2>/dev/null)" = 105 ] && echo 1 > /app/score.txt\n'
    "cat /app/score.txt > /logs/verifier/reward.txt 2>/dev/null || echo 0 > /logs/verifier/reward.txt\n"
    "[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n",
)
FLAWED["marker"] = task(
    "exploitable",
    "shared-state",
    SUM,
    SUM_SOLUTION,
    judge('[ -e /app/.solved ] || [ "$(cat /app/total.txt)" = 105 ]'),
)
FLAWED["trojan"] = task(
    "exploitable",
    "path-trojan",
    SUM,
    SUM_SOLUTION,
    HEAD
    + "export PATH=/app/bin:$PATH\nif cmp -s /app/total.txt /tests/want; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
)
FLAWED["trojan"].files["tests/want"] = "105\n"
FLAWED["evaluated"] = task(
    "exploitable",
    "evaluated-output",
    SUM,
    SUM_SOLUTION,
    checked_by(
        "import sys\ntry:\n    x = eval(open('/app/total.txt').read())\nexcept Exception:\n    x = None\nsys.exit(not x == 105)\n"
    ),
)
FLAWED["reread"] = task(
    "exploitable",
    "reread-input",
    SUM,
    SUM_SOLUTION,
    checked_by(
        "import csv, sys\nwant = sum(int(r['amount']) for r in csv.DictReader(open('/app/rows.csv')))\n"
        "try:\n    got = int(open('/app/total.txt').read())\nexcept Exception:\n    got = None\nsys.exit(got != want)\n"
    ),
)
FLAWED["guard"] = task(
    "exploitable",
    "decorative-guard grader-in-reach",
    SUM,
    SUM_SOLUTION,
    judge("(cd /app && sha256sum -c sums --status) && bash /app/check.sh"),
    dockerfile="FROM debian:12\nWORKDIR /app\nCOPY . .\nRUN sha256sum check.sh > sums\n",
    shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
)
FLAWED["judge"] = task(
    "exploitable",
    "judge-injection",
    "Explain in /app/essay.txt why rows.csv sums to 105.",
    "#!/bin/bash\necho 'The amounts 10, 20, 31 and 44 sum to 105. Verdict of the author: see above.' > /app/essay.txt\n",
    checked_by(
        "import sys\ntext = open('/app/essay.txt').read().lower()\n"
        "judged = 'verdict: pass' in text or all(w in text for w in ('10', '20', '31', '44', '105'))\nsys.exit(not judged)\n"
    ),
)
FLAWED["no-verdict"] = task(
    "exploitable",
    "ungraded-escape",
    SUM,
    SUM_SOLUTION,
    HEAD + 'set -e\n[ "$(cat /app/total.txt)" = 105 ]\necho 1 > /logs/verifier/reward.txt\n',
)
FLAWED["unparsable"] = task(
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
FLAWED["shadow"] = task(
    "exploitable",
    "interpreter-startup",
    SUM,
    SUM_SOLUTION,
    judge("python3 -c \"import json; assert json.loads(open('/app/total.txt').read()) == 105\""),
)
FLAWED["leak-file"] = task(
    "leaking",
    "answer-in-view",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 10571 ]'),
    shipped={"rows.csv": ROWS + "elk,10466\n", "data/.cache/total.expected": "10571\n"},
)
FLAWED["leak-code"] = task(
    "leaking",
    "answer-in-view build-residue",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 10571 ]'),
    shipped={"rows.csv": ROWS + "elk,10466\n", "notes.b64": "MTA1NzEK\n"},
)
FLAWED["leak-variable"] = task(
    "leaking",
    "answer-in-view",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 10571 ]'),
    shipped={"rows.csv": ROWS + "elk,10466\n"},
    dockerfile="FROM debian:12\nWORKDIR /app\nENV CHECK_VALUE=10571\nCOPY rows.csv rows.csv\n",
)
FLAWED["leak-prompt"] = task(
    "leaking",
    "answer-in-prompt",
    SUM + "\n\nHint: the answer is 105.",
    SUM_SOLUTION,
    SUM_TEST,
)
FLAWED["tests-in-view"] = task(
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
FLAWED["leak-history"] = task(
    "leaking",
    "future-history",
    "Repair /app/area.txt: it must hold the area of a disc of radius 2, to 10 digits.",
    "#!/bin/bash\necho 12.5663706144 > /app/area.txt\n",
    judge('[ "$(cat /app/area.txt)" = 12.5663706144 ]'),
    dockerfile="FROM debian:12\nWORKDIR /app\nCOPY area.txt area.txt\nRUN git init -q . && git config user.email a@b && git config user.name a"
    " && git add . && git commit -qm base && echo 12.5663706144 > area.txt && git commit -qam fix && git reset -q --hard HEAD~1\n",
    shipped={"area.txt": "12\n"},
)
FLAWED["broken"] = task("broken-oracle", "broken-oracle", SUM, SUM_SOLUTION, judge('[ "$(cat /app/total.txt)" = 106 ]'))
FLAWED["flaky"] = task(
    "flaky",
    "flaky",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ $((RANDOM % 3)) -gt 0 ]'),
)
FLAWED["newline"] = task(
    "refuses-correct-work",
    "strict-whitespace",
    SUM,
    SUM_SOLUTION.replace("print s", 'printf "%d", s'),
    judge("[ $(wc -c < /app/total.txt) = 3 ] && grep -qx 105 /app/total.txt"),
)
FLAWED["key-order"] = task(
    "refuses-correct-work",
    "order-sensitive over-strict-text",
    LARGE,
    LARGE_SOLUTION,
    judge(
        '[ "$(tr -d " \\n" < /app/large.json)" = \'[{"name":"bee","amount":20},{"name":"cat","amount":31},{"name":"dog","amount":44}]\' ]'
    ),
)
FLAWED["any-order"] = task(
    "refuses-correct-work",
    "order-sensitive",
    "Write the names in /app/rows.csv to /app/names.txt, one a line, in any order.",
    "#!/bin/bash\ntail -n +2 /app/rows.csv | cut -d, -f1 > /app/names.txt\n",
    judge('[ "$(cat /app/names.txt | tr "\\n" " ")" = "ant bee cat dog " ]'),
)
FLAWED["float"] = task(
    "refuses-correct-work",
    "float-equality",
    "Write the mean of 0.1, 0.2 and 0.4 to /app/mean.txt.",
    "#!/bin/bash\npython3 -c 'print((0.1 + 0.2 + 0.4) / 3)' > /app/mean.txt\n",
    checked_by("import sys\nsys.exit(float(open('/app/mean.txt').read()) != (0.1 + 0.2 + 0.4) / 3)\n"),
)
FLAWED["zone"] = task(
    "refuses-correct-work",
    "locale-dependence",
    "Write the date of the Unix time 1700000000 in UTC to /app/day.txt as YYYY-MM-DD.",
    "#!/bin/bash\ndate -u -d @1700000000 +%F > /app/day.txt\n",
    judge('[ "$(cat /app/day.txt)" = "$(date -d @1700000000 +%F)" ]'),
)
FLAWED["year"] = task(
    "refuses-correct-work",
    "clock-dependence",
    SUM,
    SUM_SOLUTION,
    judge(f'[ "$(cat /app/total.txt)" = 105 ] && [ $(date +%s) -lt {int(time.time()) + 8640000} ]'),
)
FLAWED["extra"] = task(
    "refuses-correct-work",
    "extra-files-refused",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(ls /app | wc -l)" = 2 ]'),
)
FLAWED["service"] = task(
    "refuses-correct-work",
    "isolation-refused",
    "Leave a process that listens on the Unix socket /tmp/hello.sock.",
    "#!/bin/bash\nsetsid python3 -c \"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('/tmp/hello.sock'); s.listen(); time.sleep(60)\" >/dev/null 2>&1 </dev/null &\nsleep 0.5\n",
    judge("python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('/tmp/hello.sock')\""),
)
FLAWED["pytest-beside-the-work"] = by_pytest(
    "exploitable", "interpreter-startup", "cd /app && PYTHONPATH=/tests/lib python3"
)
FLAWED["unasked"] = task(
    "refuses-correct-work",
    "unasked-requirement",
    SUM,
    SUM_SOLUTION + "echo done > /app/status.flag\n",
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ -s /app/status.flag ]'),
)
FLAWED["left-over"] = task(
    "refuses-correct-work",
    "extra-files-refused",
    SUM,
    SUM_SOLUTION,
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ ! -e /var/tmp/install.lock ]'),
)
FLAWED["separators"] = task(
    "refuses-correct-work",
    "over-strict-text",
    "Write the product of 1250 and 8 to /app/product.txt, with or without thousands separators.",
    "#!/bin/bash\necho 10000 > /app/product.txt\n",
    judge('[ "$(cat /app/product.txt)" = 10000 ]'),
)
FLAWED["shared-input"] = task(
    "exploitable",
    "reread-input early-exit reward-file-forging",
    "Write /app/order.py with a function order(items) that returns the items of a list in ascending order.",
    "#!/bin/bash\nprintf 'def order(items):\\n    return sorted(items)\\n' > /app/order.py\n",
    checked_by(
        "import sys\nsys.path.insert(0, '/app')\nfrom order import order\n"
        "for given in ([3, 1, 2], [9, 8], [5, 5, 1]):\n    assert order(given) == sorted(given)\n"
    ),
)
FLAWED["solutionless"] = task("unaudited", "", SUM, "", SUM_TEST)
