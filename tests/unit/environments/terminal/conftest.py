"""Small task folders of our own making, one for each feature, written by code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Write = Callable[[str, Mapping[str, str]], Path]

TOML = """\
schema_version = "1.4"
[metadata]
difficulty = "easy"  # a comment that a copy keeps
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 30
"""


def judge(condition: str) -> str:
    """A test script that writes 1 or 0 to the reward file."""
    return (
        "#!/bin/bash\nmkdir -p /logs/verifier\n"
        f"if {condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
    )


def task(dockerfile: str, condition: str, solution: str = "", **more: str) -> dict[str, str]:
    """Files of an ordinary Harbor task."""
    files = {
        "task.toml": TOML,
        "instruction.md": "Do what the tests look for.\n",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": judge(condition),
    }
    if solution:
        files["solution/solve.sh"] = solution
    return {**files, **{name.replace("__", "/"): text for name, text in more.items()}}


def awk_sum() -> dict[str, str]:
    solution = "#!/bin/bash\nset -e\nawk -F, 'NR > 1 { s += $3 } END { print s }' /app/sales.csv > /app/total.txt\n"
    return {
        **task("FROM debian:12\nWORKDIR /app\nCOPY sales.csv .\n", '[ "$(cat /app/total.txt)" = 60 ]', solution),
        "environment/sales.csv": "day,item,amount\n1,a,10\n2,b,20\n3,c,30\n",
    }


def perl_words() -> dict[str, str]:
    dockerfile = (
        "FROM debian:12\nRUN useradd --create-home clerk\nWORKDIR /srv/words\n"
        "COPY --chown=clerk:clerk --chmod=0644 text.txt in/\nUSER clerk\n"
    )
    solution = """\
#!/usr/bin/env perl
open F, '/srv/words/in/text.txt';
$n += split for <F>;
open O, '>/srv/words/count';
print O $n;
"""
    return {
        **task(dockerfile, '[ "$(cat /srv/words/count)" = 4 ]', solution),
        "environment/text.txt": "four words are here\n",
        "task.toml": TOML.replace("[agent]\n", '[agent]\nuser = "clerk"\n'),
    }


def node_keys() -> dict[str, str]:
    solution = "#!/bin/bash\nnode -e 'console.log(Object.keys(require(\"/app/a.json\")).sort().join())' > /app/keys\n"
    return {
        **task('FROM node:22\nWORKDIR /app\nADD ["a.json", "./"]\n', '[ "$(cat /app/keys)" = a,b ]', solution),
        "environment/a.json": '{"b": 1, "a": 2}\n',
    }


def python_fix() -> dict[str, str]:
    dockerfile = "FROM python:3.12-slim\nWORKDIR /app\nCOPY src/ /app/src/\nENV PYTHONPATH=/app/src LEVEL=3\n"
    solution = "sed -i 's/a - b/a + b/' /app/src/add.py\n"
    return {
        **task(dockerfile, 'python -c "import add; assert add.add(1, 2) == 3"', solution),
        "environment/src/add.py": "def add(a, b):\n    return a - b\n",
        "environment/src/deep/er/data.bin": "x",
    }


def arguments() -> dict[str, str]:
    dockerfile = (
        "# escape=`\nARG VERSION=12\nFROM debian:${VERSION} AS base\nARG VERSION\nARG HOME_DIR=/opt/tool\n"
        "ENV NAME=tool `\n    # between\n    FULL=${HOME_DIR}/$VERSION\n"
        "RUN <<EOF\nset -e\nmkdir -p $FULL\nEOF\n"
        "COPY <<one.conf <<'two.conf' ${HOME_DIR}/\nname=$NAME\none.conf\nname=$NAME\ntwo.conf\n"
        'SHELL ["/bin/bash", "-euc"]\nRUN echo "$FULL"\n'
    )
    return task(dockerfile, "[ -d /opt/tool/12 ]", "true\n")


def ignored() -> dict[str, str]:
    return {
        **task("FROM debian:12\nCOPY . /app/\nCOPY docs/*.txt /texts/\n", "true", "true\n"),
        "environment/.dockerignore": "# notes\n*.log\nsecret\n**/tmp\n!keep.log\nDockerfile\n.dockerignore\n",
        "environment/a.log": "a",
        "environment/keep.log": "k",
        "environment/secret/key": "s",
        "environment/docs/tmp/scratch": "t",
        "environment/docs/one.txt": "1",
        "environment/docs/two.txt": "2",
        "environment/docs/three.md": "3",
    }


def several_steps() -> dict[str, str]:
    steps = """\
[[steps]]
name = "make"
min_reward = 0.5
[steps.agent]
timeout_sec = 20
[[steps]]
name = "check"
min_reward = { reward = 1.0, style = 0.5 }
"""
    return {
        "task.toml": 'multi_step_reward_strategy = "final"\n' + TOML + steps,
        "environment/Dockerfile": "FROM debian:12\n",
        "tests/common.sh": "true\n",
        "steps/make/instruction.md": "Make /app/a.\n",
        "steps/make/tests/test.sh": judge("[ -e /app/a ]"),
        "steps/make/solution/solve.sh": "mkdir -p /app && touch /app/a\n",
        "steps/make/workdir/given.txt": "given\n",
        "steps/check/instruction.md": "Write its size to /app/size.\n",
        "steps/check/tests/test.sh": judge("[ -e /app/size ]"),
    }


def several_stages() -> dict[str, str]:
    dockerfile = (
        "FROM golang:1.22 AS build\nRUN go build -o /tool ./...\n\nFROM debian:12\n"
        "COPY --from=build /tool /usr/bin/tool\nWORKDIR /app\n"
    )
    return task(dockerfile, "tool --version", "true\n")


def fetching() -> dict[str, str]:
    return task("FROM debian:12\nRUN curl -fsSL https://example.org/data.csv -o /data.csv\n", "true", "true\n")


def packages() -> dict[str, str]:
    dockerfile = (
        "FROM ubuntu:24.04\nWORKDIR /app\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends gawk python3-pip=24.0 \\\n"
        "    # the editor\n    nano && rm -rf /var/lib/apt/lists/*\n"
        "COPY requirements.txt .\nRUN pip install --no-cache-dir -r requirements.txt 'Flask_Login>=0.6'\n"
    )
    return {**task(dockerfile, "true", "true\n"), "environment/requirements.txt": "numpy==2.1.0  # arrays\npytest\n"}


def image_only() -> dict[str, str]:
    files = task("", "true", "true\n")
    del files["environment/Dockerfile"]
    return {**files, "task.toml": TOML + '[environment]\ndocker_image = "registry.example/base@sha256:00"\n'}


def two_services() -> dict[str, str]:
    compose = "services:\n  main:\n    build: .\n    command: sleep infinity\n  database:\n    image: postgres:16\n"
    return {**task("FROM debian:12\n", "true", "true\n"), "environment/docker-compose.yaml": compose}


def separate_verifier() -> dict[str, str]:
    more = """\
env = { KEY = "${HOST_KEY}" }
environment_mode = "separate"
timeout_secs = 4
[environment]
memory = "2G"
storage_mb = 512
allow_internet = false
workdir = "/data"
[extra]
x = [1, 2]
"""
    return {**task("FROM debian:12\n", "true"), "task.toml": TOML + more, "README.md": "Notes.\n"}


def bench_one() -> dict[str, str]:
    return {
        "task.yaml": "instruction: |-\n  Sort /app/in.txt.\ndifficulty: easy\ntags: [text]\nparser_name: pytest\n"
        "max_agent_timeout_sec: 120.0\nmax_test_timeout_sec: 30\nauthor_name: someone\n",
        "Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY in.txt /app/\n",
        "docker-compose.yaml": "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n"
        "    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}\n    command: [sh, -c, sleep infinity]\n"
        "    environment:\n      - TEST_DIR=${T_BENCH_TEST_DIR}\n      - MODE=fast\n"
        "    volumes:\n      - ${T_BENCH_TASK_LOGS_PATH}:/logs\n",
        "in.txt": "b\na\n",
        "run-tests.sh": "#!/bin/bash\npytest $TEST_DIR/test_outputs.py -rA\n",
        "tests/test_outputs.py": "def test_it():\n    assert open('/app/out.txt').read() == 'a\\nb\\n'\n",
        "solution.sh": "#!/bin/sh\nsort /app/in.txt > /app/out.txt\n",
    }


def bench_one_other_parser() -> dict[str, str]:
    return {
        "task.yaml": "instruction: Mend it.\nparser_name: swebench\n",
        "Dockerfile": "FROM debian:12\n",
        "run-tests.sh": "true\n",
        "solution.yaml": "- command: ls\n",
    }


SAMPLES: Mapping[str, Callable[[], dict[str, str]]] = {
    builder.__name__: builder
    for builder in (
        awk_sum,
        perl_words,
        node_keys,
        python_fix,
        arguments,
        ignored,
        several_steps,
        several_stages,
        fetching,
        packages,
        image_only,
        two_services,
        separate_verifier,
        bench_one,
        bench_one_other_parser,
    )
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a folder of text files below the test's own folder."""

    def write_files(name: str, files: Mapping[str, str]) -> Path:
        folder = tmp_path / "tasks" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            if path.endswith(".sh"):
                target.chmod(0o755)
        return folder

    return write_files


@pytest.fixture
def sample(write: Write) -> Callable[[str], Path]:
    """Writes one of the sample tasks."""
    return lambda name: write(name, SAMPLES[name]())


@pytest.fixture
def samples(write: Write) -> dict[str, Path]:
    """All sample tasks, side by side."""
    return {name: write(name, builder()) for name, builder in SAMPLES.items()}
