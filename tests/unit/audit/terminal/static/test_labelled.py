# ruff: noqa: E501 - the texts of small tasks
"""Labelled examples: each class that text alone can show is found at its line; look-alikes are not."""

from __future__ import annotations

import base64
import gzip
import zlib
from typing import Any

import pytest

from flightschool.audit.terminal import FLAWS
from flightschool.audit.terminal.static import PROBE_HINTS
from flightschool.records import Severity

SECRET = "violet harbour 7719 north"
ASKS = {"instruction.md": "Find the pass phrase of the archive /app/data/a.zip and write it to /app/phrase.txt.\n"}
PHRASE = f'def test_it():\n    assert open("/app/phrase.txt").read().strip() == "{SECRET}"\n'


def phrase(kit: Any, **more: str | bytes) -> dict[str, Any]:
    files = kit.python_task(PHRASE, solution__solve_DOT_sh="#!/bin/bash\n/app/data/open > /app/phrase.txt\n", **more)
    return {**files, **ASKS}


def total(kit: Any, body: str, **more: str | bytes) -> dict[str, Any]:
    files: dict[str, Any] = kit.python_task(body, **more)
    return files


R = "/logs/verifier/reward.txt"

SHELL = {
    "swallowed-failure": [
        f"pytest /tests/test_a.py\necho 1 > {R}\n",
        f"pytest /tests/test_a.py | tee /logs/out.txt\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"if pytest /tests/test_a.py 2>&1 | tee /logs/out.txt; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"pytest /tests/test_a.py || true\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"pytest /tests/test_a.py\necho finished\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"trap 'echo 1 > {R}' EXIT\nset -e\npytest /tests/test_a.py\n",
        f"if pytest /tests/test_a.py; then echo 1 > {R}; else echo 1 > {R}; fi\n",
        f"if pytest /tests/test_a.py || true; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"pytest /tests/test_a.py > /logs/o\nif grep -q passed /logs/o; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"echo 1 > {R}\ncmp /tests/x /app/total.txt || exit 0\n[ -s /app/total.txt ] || echo 0 > {R}\n",
    ],
    "zero-collected": [
        f"pytest /tests/test_a.py\nrc=$?\nif [ $rc -eq 1 ]; then echo 0 > {R}; else echo 1 > {R}; fi\n",
        f"pytest /tests/test_a.py > /logs/o\nif grep -q failed /logs/o; then echo 0 > {R}; else echo 1 > {R}; fi\n",
    ],
    "ungraded-escape": [
        f"[ -f /app/total.txt ] || exit 1\nif cmp /app/total.txt /tests/e; then echo 1 > {R}; else echo 0 > {R}; fi\n",
        f"set -e\npytest /tests/test_a.py\necho 1 > {R}\n",
    ],
    "constant-reward": [f"pytest /tests/test_a.py\necho 0 > {R}\n"],
    "reward-file-forging": [
        f"cp /app/score.txt {R}\n",
        f'[ -f {R} ] || (pytest /tests/test_a.py && echo 1 > {R} || echo 0 > {R})\n',
    ],
    "presence-only": [f"if [ -s /app/total.txt ]; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "superset-answer": [f"if grep -q 60 /app/total.txt; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "self-comparison": [f"if cmp /app/total.txt /app/check.txt; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "reread-input": [
        'want=$(awk -F, \'{ s += $2 } END { print s }\' /app/data/rows.csv)\ngot=$(cat /app/total.txt)\n'
        f'if [ "$got" = "$want" ]; then echo 1 > {R}; else echo 0 > {R}; fi\n'
    ],
    "evaluated-output": [f". /app/result.env\nif [ \"$TOTAL\" = 60 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "network-in-grading": [f"curl -LsSf https://example.org/install.sh | sh\nif pytest /tests/a.py; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "isolation-refused": [f"if pgrep -f server; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "clock-dependence": [f'if [ "$(cat /app/total.txt)" = "$(date +%F)" ]; then echo 1 > {R}; else echo 0 > {R}; fi\n'],
    "over-strict-text": [f'if [ "$(cat /app/total.txt)" = "60.50" ]; then echo 1 > {R}; else echo 0 > {R}; fi\n'],
    "extra-files-refused": [f'if [ "$(ls /app/out | wc -l)" -eq 3 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n'],
    "strict-whitespace": [f"if cmp /app/total.txt /tests/expected.txt; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
    "shared-state": [f'if [ "$(cat /tmp/result)" = 60 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n'],
    "interpreter-startup": [f"if python3 -m pytest /tests/test_a.py; then echo 1 > {R}; else echo 0 > {R}; fi\n"],
}  # fmt: skip

PYTHON = {
    "empty-criteria": [
        'def test_it():\n    print(open("/app/total.txt").read())\n',
        'def test_it():\n    assert (open("/app/total.txt").read() == "60", "wrong")\n',
        'import csv\ndef test_it():\n    for row in csv.reader(open("/app/out.csv")):\n        assert int(row[0]) == 3\n',
        'import pytest\n@pytest.mark.skip\ndef test_it():\n    assert open("/app/total.txt").read() == "60"\n',
    ],
    "presence-only": [
        'import os\ndef test_it():\n    assert os.path.exists("/app/total.txt")\n    assert os.path.getsize("/app/total.txt") > 0\n',
        'from pathlib import Path\nP = Path("/app") / "total.txt"\ndef test_it():\n    assert P.is_file()\n    text = P.read_text()\n'
        "    assert text.strip()\n",
    ],
    "swallowed-failure": [
        'def test_it():\n    try:\n        assert open("/app/total.txt").read().strip() == "60"\n    except AssertionError:\n        pass\n',
        'import os\ndef test_it():\n    if not os.path.exists("/app/total.txt"):\n        return\n    assert open("/app/total.txt").read().strip() == "60"\n',
    ],
    "early-exit": [
        'import os, pytest\ndef test_it():\n    if not os.path.exists("/app/total.txt"):\n        pytest.skip("no result")\n'
        '    assert open("/app/total.txt").read().strip() == "60"\n',
    ],
    "unparsable-passes": [
        'import json\ndef ok():\n    try:\n        return json.load(open("/app/out.json"))["n"] == 3\n    except Exception:\n        return True\n'
        "def test_it():\n    assert ok()\n",
    ],
    "superset-answer": [
        'def test_it():\n    assert "60" in open("/app/total.txt").read()\n',
        'def test_it():\n    assert open("/app/total.txt").read().startswith("60")\n',
        'def test_it():\n    got = set(open("/app/names.txt").read().split())\n    assert {"ann", "bob"} <= got\n',
    ],
    "float-equality": ['import json\ndef test_it():\n    assert json.load(open("/app/out.json"))["mean"] == 12.375\n'],
    "order-sensitive": ['import json\ndef test_it():\n    assert json.load(open("/app/out.json")) == ["pear", "fig", "plum"]\n'],
    "strict-whitespace": ['def test_it():\n    assert open("/app/total.txt").read() == "60\\n"\n'],
    "over-strict-text": ['def test_it():\n    assert open("/app/out.json").read().strip() == \'{"total": 60}\'\n'],
    "extra-files-refused": ['import os\ndef test_it():\n    assert os.listdir("/app/out") == ["a.txt"]\n'],
    "not-a-number": [
        'def check():\n    x = float(open("/app/total.txt").read())\n    if abs(x - 60.0) > 0.001:\n        return False\n    return True\n'
        "def test_it():\n    assert check()\n",
    ],
    "loose-tolerance": [
        'def test_it():\n    assert abs(float(open("/app/total.txt").read()) - 60) < 20\n',
        'import pytest\ndef test_it():\n    assert float(open("/app/total.txt").read()) == pytest.approx(60, rel=0.5)\n',
    ],
    "evaluated-output": [
        'def test_it():\n    assert eval(open("/app/total.txt").read()) == 60\n',
        'import pickle\ndef test_it():\n    with open("/app/out.pkl", "rb") as f:\n        assert pickle.load(f) == 60\n',
        'import yaml\ndef test_it():\n    assert yaml.load(open("/app/out.yaml"), Loader=yaml.Loader)["n"] == 60\n',
    ],
    "self-comparison": [
        'import json\ndef test_it():\n    want = json.load(open("/app/summary.json"))["n"]\n    assert int(open("/app/total.txt").read()) == want\n'
    ],
    "reread-input": [
        'import csv\ndef want():\n    return sum(int(r[1]) for r in csv.reader(open("/app/data/rows.csv")))\n'
        'def test_it():\n    assert int(open("/app/total.txt").read()) == want()\n'
    ],
    "introspection": ['import sys\nsys.path.insert(0, "/app")\nfrom solver import total\ndef test_it():\n    assert total([1, 2]) == 3\n'],
    "always-equal": ['import sys\nsys.path.insert(0, "/app")\nimport solver\ndef test_it():\n    assert solver.total([1, 2]) == 3\n'],
    "stdout-forging": [
        'import subprocess\ndef test_it():\n    out = subprocess.run(["python3", "/app/run.py"], capture_output=True, text=True).stdout\n'
        '    assert "PASS" in out\n'
    ],
    "clock-dependence": [
        'import datetime\ndef test_it():\n    assert open("/app/day.txt").read().strip() == datetime.date.today().isoformat()\n'
    ],
    "locale-dependence": [
        'from datetime import datetime\ndef test_it():\n    assert open("/app/day.txt").read().strip() == datetime(2024, 5, 3).strftime("%A")\n'
    ],
    "slow-refused": [
        'import subprocess, time\ndef test_it():\n    start = time.time()\n    subprocess.run(["/app/run"], check=True)\n    assert time.time() - start < 2\n'
    ],
    "network-in-grading": ['import requests\ndef test_it():\n    assert requests.get("https://example.org/a").text == open("/app/a").read()\n'],
    "isolation-refused": ['import requests\ndef test_it():\n    assert requests.get("http://localhost:8080/health").status_code == 200\n'],
    "flaky": ['import random\ndef test_it():\n    n = random.randint(1, 9)\n    assert int(open("/app/total.txt").read()) > n\n'],
    "judge-injection": [
        "from openai import OpenAI\ndef test_it():\n    text = open('/app/essay.txt').read()\n"
        "    r = OpenAI().chat.completions.create(model='m', messages=[{'role': 'user', 'content': text}])\n    assert r.ok\n"
    ],
    "decorative-guard": [
        'import hashlib\ndef test_it():\n    got = hashlib.sha256(open("/app/data/rows.csv", "rb").read()).hexdigest()\n'
        '    assert got == open("/app/data/rows.sum").read().strip()\n'
    ],
    "zero-collected": [
        'import json, pytest\n@pytest.mark.parametrize("case", json.load(open("/app/cases.json")))\ndef test_it(case):\n    assert case["a"] == 1\n'
    ],
}  # fmt: skip


def leaks(kit: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    docker = kit.dockerfile
    wrapped = base64.b64encode(SECRET.encode()).decode()
    loose = zlib.compress(b"blob %d\0" % len(SECRET) + SECRET.encode())
    return {
        "plain": ("answer-in-view", phrase(kit, environment__data__notes_DOT_md=f"remember: {SECRET}\n")),
        "base64": ("answer-in-view", phrase(kit, environment__data__cache_DOT_bin=f"x={wrapped};\n")),
        "hex": ("answer-in-view", phrase(kit, environment__data__c_DOT_txt=SECRET.encode().hex())),
        "gzip": ("answer-in-view", phrase(kit, environment__data__c_DOT_gz=gzip.compress(SECRET.encode()))),
        "rot13": ("answer-in-view", phrase(kit, environment__data__r_DOT_txt="ivbyrg uneobhe 7719 abegu")),
        "by RUN": ("answer-in-view", phrase(kit, environment__Dockerfile=docker + f"RUN echo '{SECRET}' > /opt/answer.txt\n")),
        "variable": ("answer-in-view", phrase(kit, environment__Dockerfile=docker + f'ENV ARCHIVE="{SECRET}"\n')),
        "tests copied": (
            "tests-in-view",
            phrase(kit, environment__data__t_DOT_py=PHRASE + "x = 1\n" * 4 + "# a copy\n") | {"tests/test_outputs.py": PHRASE + "x = 1\n" * 4},
        ),
        "prompt": ("answer-in-prompt", phrase(kit) | {"instruction.md": f"Write the phrase to /app/phrase.txt. The answer is {SECRET}.\n"}),
        "bytecode": ("build-residue", phrase(kit, environment__data____pycache____test_outputs_DOT_cpython_311_DOT_pyc=b"\xa7\r\r\n" + SECRET.encode())),
        "backup": ("build-residue", phrase(kit, environment__data__a_DOT_py="x = 2\n", environment__data__a_DOT_py_DOT_orig="x = 1\n")),
        "generator": (
            "build-residue",
            phrase(kit, environment__Dockerfile=docker + "RUN python3 /app/data/generate.py\n", environment__data__generate_DOT_py="expected = 3\nprint(expected)\n"),
        ),
        "git reset": (
            "future-history",
            phrase(kit, environment__Dockerfile=docker + "RUN git init && git add . && git commit -m a && git commit -am fix && git reset --hard HEAD~1\n"),
        ),
        "git object": ("future-history", phrase(kit) | {"environment/data/.git/objects/ab/" + "c" * 38: loose, "environment/data/.git/HEAD": "ref: refs/heads/main\n"}),
        "grader shipped": (
            "grader-in-reach",
            kit.harbor(kit.judge("python3 /app/data/verify.py"), environment__data__verify_DOT_py="import sys\nsys.exit(open('/app/total.txt').read() != '60')\n"),
        ),
        "tests shipped": (
            "test-edit",
            kit.harbor(kit.judge("pytest -q /app/data/test_it.py"), environment__data__test_it_DOT_py="def test_it():\n    assert open('/app/total.txt').read() == '60'\n"),
        ),
        "hook": ("pytest-hook", kit.harbor("cp /tests/test_a.py /app\n" + kit.judge("(cd /app && pytest -q test_a.py)"), tests__test_a_DOT_py=PHRASE)),
        "path": ("path-trojan", kit.harbor(kit.judge("pytest /tests/a.py"), environment__Dockerfile=docker + "ENV PATH=/app/bin:/usr/bin:/bin\n")),
        "sums": ("decorative-guard", kit.harbor(kit.judge("(cd /app/data && sha256sum -c rows.sha256)"), environment__data__rows_DOT_sha256="00  rows.csv\n")),
        "exit": (
            "early-exit",
            kit.python_task('import sys\nsys.path.insert(0, "/app")\nfrom solver import total\ndef test_it():\n    assert total([1]) == 1\n'),
        ),
    }  # fmt: skip


LEAKS = [
    "plain", "base64", "hex", "gzip", "rot13", "by RUN", "variable", "tests copied", "prompt", "bytecode", "backup", "generator",
    "git reset", "git object", "grader shipped", "tests shipped", "hook", "path", "sums", "exit",
]  # fmt: skip


def controls(kit: Any) -> dict[str, dict[str, Any]]:
    sound = kit.judge('[ "$(cat /app/total.txt)" = "60" ]')
    exact = 'def test_it():\n    assert int(open("/app/total.txt").read()) == 60\n'
    return {
        "sound shell": kit.harbor(sound),
        "sound pytest": total(kit, exact),
        "grader-like name that nothing runs": kit.harbor(sound, environment__data__verify_DOT_py="print('hello')\n"),
        "stub outside the live path": kit.harbor("spare() { echo 1 > /logs/verifier/reward.txt; }\n" + sound),
        "stub behind exit": kit.harbor(sound + "exit 0\necho 1 > /logs/verifier/reward.txt\n"),
        "harmless or true": kit.harbor("rm -rf /app/__pycache__ || true\n" + sound),
        "example number": kit.harbor(sound) | {"instruction.md": "Write the sum of data/rows.csv to total.txt, for example 42.\n"},
        "pipe with pipefail": kit.harbor("set -o pipefail\n" + kit.judge("(cd /tests && pytest -q test_a.py | tee /logs/o)"), tests__test_a_DOT_py=exact),
        "pipe status kept": kit.harbor(
            f"cd /tests\npytest -q test_a.py | tee /logs/o\nif [ ${{PIPESTATUS[0]}} -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n",
            tests__test_a_DOT_py=exact,
        ),
        "status kept": kit.harbor(f"cd /tests\npytest -q test_a.py\nrc=$?\nif [ $rc -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n", tests__test_a_DOT_py=exact),
        "zero first": kit.harbor(f"echo 0 > {R}\ncd /tests && pytest -q test_a.py && echo 1 > {R}\n", tests__test_a_DOT_py=exact),
        "trap writes zero": kit.harbor(f"trap '[ -f {R} ] || echo 0 > {R}' EXIT\n" + sound),
        "one reference among many": total(
            kit,
            'import json\ndef test_it():\n    got = json.load(open("/app/plan.json"))\n    assert got in ([1, 2], [2, 1], [3])\n',
            environment__data__plan_DOT_json="[9]\n",
        ),
        "approx": total(kit, 'import pytest\ndef test_it():\n    assert float(open("/app/total.txt").read()) == pytest.approx(60.25, abs=1e-6)\n'),
        "closed answer": phrase(kit, environment__Dockerfile=kit.dockerfile + f"RUN echo '{SECRET}' > /opt/a && chmod 600 /opt/a\nRUN useradd u\nUSER u\n"),
        "answer removed": phrase(kit, environment__Dockerfile=kit.dockerfile + f"RUN echo '{SECRET}' > /opt/a\nRUN rm /opt/a\n"),
        "handled and failed": total(
            kit,
            'import json, pytest\ndef test_it():\n    try:\n        got = json.load(open("/app/out.json"))\n    except ValueError:\n'
            '        pytest.fail("no JSON")\n    assert got["n"] == 3\n',
        ),
        "safe yaml": total(kit, 'import yaml\ndef test_it():\n    assert yaml.safe_load(open("/app/o.yaml"))["n"] == 60\n'),
        "own server": total(
            kit,
            'import subprocess, requests\ndef test_it():\n    p = subprocess.Popen(["/app/serve"])\n'
            '    assert requests.get("http://localhost:8080/").json()["n"] == 3\n    p.kill()\n',
        ),
        "counted loop": total(
            kit,
            'import csv\ndef test_it():\n    rows = list(csv.reader(open("/app/out.csv")))\n    assert len(rows) == 3\n'
            "    for row in rows:\n        assert int(row[0]) == 3\n",
        ),
    }  # fmt: skip


CONTROLS = [
    "sound shell", "sound pytest", "grader-like name that nothing runs", "stub outside the live path", "stub behind exit",
    "harmless or true", "example number", "pipe with pipefail", "pipe status kept", "status kept", "zero first",
    "trap writes zero", "one reference among many", "approx", "closed answer", "answer removed", "handled and failed", "safe yaml",
    "own server", "counted loop",
]  # fmt: skip


def told(found: Any) -> list[str]:
    return [f"{f.flaw} {f.where} {f.what}" for f in found.findings]


@pytest.mark.parametrize(("slug", "at"), [(slug, at) for slug, tests in SHELL.items() for at in range(len(tests))])
def test_flaws_of_test_scripts(look: Any, kit: Any, slug: str, at: int) -> None:
    found = look(
        kit.harbor(
            SHELL[slug][at],
            tests__expected_DOT_txt="60\n",
            tests__test_a_DOT_py="def test_a():\n    assert 2 == 1 + 1\n",
        )
    )
    hits = [f for f in found.findings if f.flaw == slug]
    assert hits, told(found)
    assert hits[0].where.startswith("tests/test.sh:")
    assert int(hits[0].where.rpartition(":")[2]) > 1


@pytest.mark.parametrize(("slug", "at"), [(slug, at) for slug, tests in PYTHON.items() for at in range(len(tests))])
def test_flaws_of_python_tests(look: Any, kit: Any, slug: str, at: int) -> None:
    found = look(total(kit, PYTHON[slug][at], environment__data__rows_DOT_sum="0\n"))
    hits = [f for f in found.findings if f.flaw == slug]
    assert hits, told(found)
    assert hits[0].where.startswith("tests/test_outputs.py:")


@pytest.mark.parametrize("name", LEAKS)
def test_what_lies_in_reach(look: Any, kit: Any, name: str) -> None:
    slug, files = leaks(kit)[name]
    found = look(files)
    assert slug in [f.flaw for f in found.findings], told(found)


@pytest.mark.parametrize("name", CONTROLS)
def test_lookalikes_stay_clean(look: Any, kit: Any, name: str) -> None:
    found = look(controls(kit)[name])
    assert told(found) == []
    assert found.skipped == ()


def test_the_lists_are_whole(kit: Any) -> None:
    assert sorted(leaks(kit)) == sorted(LEAKS)
    assert sorted(controls(kit)) == sorted(CONTROLS)


def test_warnings_only_and_each_names_a_probe_and_a_mend(look: Any, kit: Any) -> None:
    seen = set()
    for slug, texts in SHELL.items():
        del slug
        for finding in look(kit.harbor(texts[0])).findings:
            seen.add(finding.flaw)
            assert finding.severity is Severity.WARNING
            assert not finding.confirmed
            assert 0 < finding.confidence < 1
            assert PROBE_HINTS[finding.flaw] in finding.observed
            assert finding.mend
            assert finding.accuses is FLAWS[finding.flaw].accuses
    assert len(seen) > 10
    assert PROBE_HINTS.keys() == FLAWS.keys()


RENAMES = {
    "total.txt": "zeta.out",
    "test_outputs": "test_renamed",
    "rows.csv": "klm.csv",
    "test_it": "test_other",
    "want": "qqq",
}


@pytest.mark.parametrize("slug", sorted(PYTHON))
def test_other_names_change_nothing(look: Any, kit: Any, slug: str) -> None:
    files = total(kit, PYTHON[slug][0], environment__data__rows_DOT_sum="0\n")
    before = sorted(f.flaw for f in look(files).findings)
    renamed: dict[str, Any] = {}
    for name, content in files.items():
        for old, new in RENAMES.items():
            name = name.replace(old, new)
            content = content.replace(old, new) if isinstance(content, str) else content
        renamed[name] = content
    assert sorted(f.flaw for f in look(renamed).findings) == before
