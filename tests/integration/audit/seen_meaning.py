# ruff: noqa: E501 - the texts of small tasks
"""The seen half: right work that only inputs and words show to be right, work that only seems to be done, and their twins without the flaw."""

from __future__ import annotations

from tests.integration.audit.labelled import (
    ROWS,
    SUM,
    SUM_SOLUTION,
    TOML,
    Labelled,
    checked_by,
    judge,
    task,
)

OF_MEANING: dict[str, Labelled] = {}
WITHOUT_THE_FLAW: dict[str, Labelled] = {}
refuses = "refuses-correct-work"

found: dict[str, Labelled] = {}
OF_MEANING["unit"] = task(
    refuses,
    "over-strict-text",
    "How long did the slowest step of /app/steps take (name, duration)? Write it with its unit to /app/slowest.txt.",
    "#!/bin/bash\necho 80 seconds > /app/slowest.txt\n",
    judge('[ "$(cat /app/slowest.txt)" = "80 seconds" ]'),
    shipped={"steps": "wash 80\ndry 20\n"},
)
OF_MEANING["offset"] = task(
    refuses,
    "over-strict-text",
    "Write the earliest instant of /app/log to /app/first.txt, as an ISO 8601 timestamp.",
    "#!/bin/bash\necho 2024-05-03T07:12:30Z > /app/first.txt\n",
    judge('[ "$(cat /app/first.txt)" = 2024-05-03T07:12:30Z ]'),
    shipped={"log": "2024-05-03T09:12:30+02:00 error\n2024-05-03T07:13:00Z error\n"},
)
OF_MEANING["two-orders"] = task(
    refuses,
    "one-of-many",
    "/app/deps has lines `target: needs`. Write an order in which all can be built to /app/order.txt, one name a line.",
    "#!/bin/bash\nprintf 'core\\nui\\napp\\ndocs\\n' > /app/order.txt\n",
    judge('[ "$(xargs < /app/order.txt)" = "core ui app docs" ]'),
    shipped={"deps": "app: core ui\nui: core\ncore:\ndocs:\n"},
)
OF_MEANING["default"] = task(
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
OF_MEANING["wrong-day"] = task(
    refuses,
    "wrong-truth",
    "Write the weekday of each date of /app/dates to /app/days.txt, one a line.",
    "#!/bin/bash\nprintf 'Wednesday\\nSunday\\nFriday\\n' > /app/days.txt\n",
    judge('[ "$(xargs < /app/days.txt)" = "Wednesday Sunday Friday" ]'),
    shipped={"dates": "2024-02-29\n2023-01-01\n1999-12-31\n"},
)
OF_MEANING["digits"] = task(
    refuses,
    "float-equality",
    "Write the sum of the amounts of /app/rows.csv divided by 9 to /app/mean.txt.",
    "#!/bin/bash\npython3 -c 'print(round((10 + 20 + 31 + 44) / 9, 3))' > /app/mean.txt\n",
    judge('[ "$(cat /app/mean.txt)" = 11.667 ]'),
)
OF_MEANING["mode"] = task(
    refuses,
    "unasked-requirement",
    SUM,
    SUM_SOLUTION + "chmod 440 /app/total.txt\n",
    judge('[ "$(cat /app/total.txt)" = 105 ] && [ "$(stat -c %a /app/total.txt)" = 440 ]'),
)
OF_MEANING["empty"] = task(
    refuses,
    "unasked-requirement",
    "Write the names in /app/rows.csv with an amount above 90 to /app/rich.txt; if there are none, leave it empty.",
    "#!/bin/bash\necho none > /app/rich.txt\n",
    judge('[ "$(cat /app/rich.txt)" = none ]'),
)
OF_MEANING["visible-pattern"] = task(
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
OF_MEANING["endless"] = task(
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
OF_MEANING["no-cases"] = task(
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
OF_MEANING["pieces"] = task(
    "leaking",
    "answer-in-view build-residue",
    "One number of /app/rows.csv is wrong. Write its row and the right number to /app/found.txt, separated by a space.",
    "#!/bin/bash\necho 3711 8204 > /app/found.txt\n",
    judge('[ "$(cat /app/found.txt)" = "3711 8204" ]'),
    shipped={"rows.csv": ROWS, ".make/log": "row=3711 was=8204\n"},
)
OF_MEANING["told-in-notes"] = task(
    "leaking",
    "answer-in-prompt",
    "Write the name with the largest amount in /app/rows.csv to /app/name.txt.\n\nNotes for reviewers: resolves to `dogfish`.",
    "#!/bin/bash\nsort -t, -k2,2n /app/rows.csv | tail -1 | cut -d, -f1 > /app/name.txt\n",
    judge('[ "$(cat /app/name.txt)" = dogfish ]'),
    shipped={"rows.csv": "ant,10\ndogfish,31\nbee,20\n"},
)


WITHOUT_THE_FLAW["log-lines"] = task(
    "sound",
    "",
    "Write a report /app/report.txt in which one line reads `sum=<sum of the amounts of /app/rows.csv>`; other lines are free.",
    "#!/bin/bash\necho sum=105 > /app/report.txt\n",
    judge('[ "$(grep ^sum= /app/report.txt)" = sum=105 ]'),
)
WITHOUT_THE_FLAW["pattern-held"] = task(
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
WITHOUT_THE_FLAW["any-unit"] = task(
    "sound",
    "",
    "How long did the slowest step of /app/steps take (name, seconds)? Write it with its unit, seconds, to /app/slowest.txt.",
    "#!/bin/bash\necho 80 seconds > /app/slowest.txt\n",
    judge('[ "$(cat /app/slowest.txt)" = "80 seconds" ]'),
    shipped={"steps": "wash 80\ndry 20\n"},
)
WITHOUT_THE_FLAW["names-dictated"] = task(
    "sound",
    "",
    "Write the larger of the names in /app/names, `kangaroo` or `wolverine`, by its place in the alphabet, to /app/name.txt.",
    "#!/bin/bash\nsort /app/names | tail -1 > /app/name.txt\n",
    judge('[ "$(cat /app/name.txt)" = wolverine ]'),
    shipped={"names": "wolverine\nkangaroo\n"},
)
