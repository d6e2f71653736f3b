# ruff: noqa: E501 - the texts of small tasks
"""The seen half: clean tasks, many of which look guilty."""

from __future__ import annotations

from tests.integration.audit.labelled import (
    LARGE,
    LARGE_CHECK,
    LARGE_SOLUTION,
    ROWS,
    SUM,
    SUM_SOLUTION,
    SUM_TEST,
    TOML,
    Labelled,
    by_pytest,
    checked_by,
    judge,
    task,
)

CLEAN: dict[str, Labelled] = {}

CLEAN["sum"] = task("sound", "", SUM, SUM_SOLUTION, SUM_TEST)
CLEAN["json"] = task("sound", "", LARGE, LARGE_SOLUTION, checked_by(LARGE_CHECK))
CLEAN["hello"] = task(
    "sound",
    "",
    "Write the line `Hello, audit!` to /app/hello.txt.",
    "#!/bin/bash\necho 'Hello, audit!' > /app/hello.txt\n",
    judge('[ "$(cat /app/hello.txt)" = "Hello, audit!" ]'),
    shipped={"readme.txt": "an empty place\n"},
)
CLEAN["grader-like-name"] = task(
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
CLEAN["user"] = task(
    "sound",
    "",
    SUM,
    SUM_SOLUTION,
    judge("bash /opt/check.sh"),
    dockerfile="FROM debian:12\nRUN useradd -m clerk && mkdir -p /opt\nCOPY check.sh /opt/check.sh\nWORKDIR /app\nCOPY rows.csv rows.csv\nRUN chown -R clerk /app\nUSER clerk\n",
    shipped={"rows.csv": ROWS, "check.sh": '#!/bin/bash\n[ "$(cat /app/total.txt)" = 105 ]\n'},
    toml=TOML.replace("[verifier]\n", '[verifier]\nuser = "root"\n'),
)
CLEAN["sorted"] = task(
    "sound",
    "",
    "Sort the data rows of /app/rows.csv by amount, largest first, and write them with their head to /app/sorted.csv.",
    "#!/bin/bash\n(head -1 /app/rows.csv; tail -n +2 /app/rows.csv | sort -t, -k2,2nr) > /app/sorted.csv\n",
    checked_by(
        "import csv, sys\ntry:\n    rows = [r for r in csv.reader(open('/app/sorted.csv')) if r]\nexcept Exception:\n    sys.exit(1)\n"
        "sys.exit(rows != [['name', 'amount'], ['dog', '44'], ['cat', '31'], ['bee', '20'], ['ant', '10']])\n"
    ),
)
CLEAN["rounded"] = task(
    "sound",
    "",
    "Write the mean amount of /app/rows.csv to /app/mean.txt; it is accepted within 0.01.",
    "#!/bin/bash\nawk -F, 'NR > 1 { s += $2 } END { print s / (NR - 1) }' /app/rows.csv > /app/mean.txt\n",
    checked_by(
        "import sys\ntry:\n    x = float(open('/app/mean.txt').read())\nexcept Exception:\n    sys.exit(1)\nsys.exit(not abs(x - 26.25) <= 0.01)\n"
    ),
)
CLEAN["edited"] = task(
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
CLEAN["two-files"] = task(
    "sound",
    "",
    SUM + " Write the number of animals to /app/count.txt.",
    SUM_SOLUTION + "echo 4 > /app/count.txt\n",
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(cat /app/count.txt)" = 4 ]'),
)
CLEAN["moved"] = task(
    "sound",
    "",
    "Move /app/old/plan.txt to /app/new/plan.txt.",
    "#!/bin/bash\nmkdir -p /app/new && mv /app/old/plan.txt /app/new/plan.txt\n",
    judge("[ ! -e /app/old/plan.txt ] && [ \"$(cat /app/new/plan.txt)\" = 'plan of 17 steps' ]"),
    shipped={"old/plan.txt": "plan of 17 steps\n"},
)
CLEAN["today"] = task(
    "sound",
    "",
    "Write today's date in UTC to /app/today.txt as YYYY-MM-DD.",
    "#!/bin/bash\ndate -u +%F > /app/today.txt\n",
    judge('[ "$(cat /app/today.txt)" = "$(date -u +%F)" ]'),
)
CLEAN["pytest"] = by_pytest("sound", "", "cd /tests && PYTHONPATH=/tests/lib python3 -P")
CLEAN["stub-beside"] = task(
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
CLEAN["confined"] = task(
    "sound",
    "",
    "Write a sed script /app/marks.sed that turns every comma of its input into a semicolon.",
    "#!/bin/bash\necho 's/,/;/g' > /app/marks.sed\n",
    judge(
        "[ \"$(printf 'a,b,,c\\n' | sed --sandbox -f /app/marks.sed)\" = 'a;b;;c' ]"
        " && [ \"$(printf 'plain\\n,x\\n' | sed --sandbox -f /app/marks.sed | tr '\\n' '+')\" = 'plain+;x+' ]"
    ),
)
