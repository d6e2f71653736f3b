# ruff: noqa: E501 - the texts of small tasks
"""Small tasks of our own making with what is true of them: the record, and how they are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

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
