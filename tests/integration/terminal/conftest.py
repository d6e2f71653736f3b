"""Small task folders of our own making, and ways to run them: as the present user and as an ordinary one."""

from __future__ import annotations

import codecs
import concurrent.futures.thread  # noqa: F401 - asyncio imports it late, when an ordinary user may not read where it lies
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.rollouts.terminal import Result, find_tasks, parse_policy, run_episodes
from flightschool.sandbox.launching import interpreter

ORDINARY = 64999
"""An id that no account has."""

TOML = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
TEST_HEAD = "#!/bin/bash\nmkdir -p /logs/verifier\n"

Files = dict[str, str]


def judge(condition: str) -> str:
    """A test script that writes 1 or 0."""
    return f"{TEST_HEAD}if {condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def harbor(dockerfile: str, test: str, solution: str = "", **more: str) -> Files:
    """Files of a Harbor task; ``__`` in a name stands for ``/``, ``_DOT_`` for a dot."""
    files = {
        "task.toml": TOML,
        "instruction.md": "Do what is asked for.\n",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": test,
    }
    if solution:
        files["solution/solve.sh"] = solution
    return files | {name.replace("__", "/").replace("_DOT_", "."): text for name, text in more.items()}


def awk_sum() -> Files:
    return harbor(
        "FROM debian:12\nWORKDIR /app\nCOPY rows.csv .\nRUN mkdir out && chmod 755 out\n",
        judge('[ "$(cat /app/out/total)" = "60" ]'),
        '#!/usr/bin/awk -f\nBEGIN { FS = ","; while ((getline < "/app/rows.csv") > 0) s += $2;'
        ' print s > "/app/out/total" }\n',
        environment__rows_DOT_csv="a,10\nb,20\nc,30\n",
    )


def perl_user() -> Files:
    dockerfile = """\
ARG RELEASE=24.04
FROM ubuntu:${RELEASE}
ARG WHO=clerk
ENV LIMIT=3 TOOLS=/opt/tools
ENV PATH=$TOOLS:$PATH
RUN useradd --create-home $WHO && echo "$LIMIT" > /limit
COPY --chmod=755 tool.sh /opt/tools/tool
WORKDIR /srv/words
COPY --chown=clerk:clerk in/ in/
RUN chown -R clerk:clerk /srv/words && install -o clerk -m 600 /dev/null /srv/words/secret
USER clerk
RUN whoami > in/who
"""
    solution = """\
#!/usr/bin/env perl
use strict;
open(my $in, '<', '/srv/words/in/text') or die; my $n = 0; while (<$in>) { $n += scalar split }
open(my $out, '>', '/srv/words/count') or die; print $out "$n $ENV{LIMIT} " . `tool`; close $out;
chmod 0600, '/srv/words/count';
"""
    condition = '[ "$(cat /srv/words/count)" = "4 3 tool clerk" ] && [ "$(cat /srv/words/in/who)" = clerk ]'
    return harbor(
        dockerfile,
        judge(condition),
        solution,
        task_DOT_toml=TOML + '[metadata]\nnote = "kept"\n[environment]\nmemory_mb = 512\nstorage_mb = 64\n',
        environment__tool_DOT_sh='#!/bin/sh\necho "tool $(whoami)"\n',
        environment__in__text="four words are here\n",
    )


def root_reads_all() -> Files:
    """Tests as root must read what another user closed."""
    files = perl_user()
    files["task.toml"] = files["task.toml"].replace("[verifier]\n", '[verifier]\nuser = "root"\n')
    return files


def node_keys() -> Files:
    solution = "#!/usr/bin/env node\nconst fs = require('fs');\n"
    solution += (
        "fs.writeFileSync('/app/keys', Object.keys(JSON.parse(fs.readFileSync('/app/a.json'))).sort().join());\n"
    )
    return harbor(
        'FROM node:22\nWORKDIR /app\nADD ["a.json", "./"]\n',
        judge('[ "$(cat /app/keys)" = a,b ]'),
        solution,
        environment__a_DOT_json='{"b": 1, "a": 2}\n',
    )


def c_program() -> Files:
    return harbor(
        "FROM gcc:13\nWORKDIR /app\nCOPY main.c .\n",
        judge('[ "$(/app/main)" = 42 ]'),
        "sed -i s/41/42/ main.c && gcc -o main main.c\n",
        environment__main_DOT_c='#include <stdio.h>\nint main(void) { printf("%d\\n", 41); return 0; }\n',
    )


def packages_there() -> Files:
    """What RUN asks of apt is there already; so is what the tests ask for."""
    return harbor(
        "FROM debian:12\nRUN apt-get update && apt-get install -y --no-install-recommends bash coreutils \\\n"
        " && rm -rf /var/lib/apt/lists/*\nWORKDIR /app\n",
        TEST_HEAD + "apt-get update && apt-get install -y sed || exit 1\n" + judge("[ -e /app/done ]"),
        "touch done\n",
    )


def two_verdicts() -> Files:
    """reward.json outranks reward.txt."""
    test = TEST_HEAD + "echo 1 > /logs/verifier/reward.txt\n"
    test += "[ -e /app/done ] && good=1 || good=0\n"
    test += 'echo "{\\"reward\\": $good, \\"style\\": 0.5}" > /logs/verifier/reward.json\n'
    return harbor("FROM debian:12\nWORKDIR /app\n", test, "touch done\n")


def partial() -> Files:
    test = TEST_HEAD + "ls /app | wc -l | awk '{ print $1 / 4 }' > /logs/verifier/reward.txt\n"
    return harbor("FROM debian:12\nWORKDIR /app\n", test, "touch a b c d\n")


def several_steps() -> Files:
    steps = '[[steps]]\nname = "make"\nmin_reward = 1.0\n[[steps]]\nname = "measure"\n'
    return {
        "task.toml": TOML + steps,
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "tests/common.sh": "mkdir -p /logs/verifier\n",
        "steps/make/instruction.md": "Make /app/text of given.txt.\n",
        "steps/make/tests/test.sh": ". /tests/common.sh\n" + judge("cmp /app/text /app/given.txt"),
        "steps/make/solution/solve.sh": "cp given.txt text\n",
        "steps/make/workdir/given.txt": "given\n",
        "steps/measure/instruction.md": "Write its size to /app/size.\n",
        "steps/measure/tests/test.sh": ". /tests/common.sh\n"
        + judge('[ "$(cat /app/size)" = 6 ] && [ -e /app/was-set-up ]'),
        "steps/measure/solution/solve.sh": "wc -c < text > size\n",
        "steps/measure/workdir/setup.sh": "touch was-set-up\n",
    }


def terminal_bench() -> Files:
    run_tests = "#!/bin/bash\nif grep -q hello /app/greeting; then echo '=== 1 passed in 0.01s ==='\n"
    run_tests += "else echo '=== 1 failed in 0.01s ==='; exit 1; fi\n"
    return {
        "task.yaml": "instruction: Greet in /app/greeting.\nmax_agent_timeout_sec: 20\nmax_test_timeout_sec: 20\n"
        "parser_name: pytest\n",
        "Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "run-tests.sh": run_tests,
        "tests/note.txt": "x",
        "solution.sh": "#!/bin/bash\necho hello > /app/greeting\n",
    }


def typed() -> Files:
    """A solution of keystrokes: lines to the shell and to programs in front of it, keys, waiting and not waiting."""
    run_tests = """\
cd /app
want="2 typed plum 40 160 again again /dev/pts"
read -r lines < count; read -r size < size
got="$lines $(cat by-python) $(cat name) $size $(cat twice | tr '\\n' ' ')$(dirname $(cat terminal))"
echo "$got"
if [ "$got" = "$want" ] && [ ! -e /oracle ] && [ -z "$(ls -A /tmp)" ]; then echo '=== 1 passed in 0.01s ==='
else echo '=== 1 failed in 0.01s ==='; fi
"""
    solution = """\
- command: cd /app; export NAME=plum
  block: true
- command: cat > note
- command: first line
- command: second line
- command: C-d
  append_enter: false
  min_timeout_sec: 0.4
- command: sleep 0.6; wc -l < note > count
  block: true
  max_timeout_sec: 60
- command: python3 -q
  min_timeout_sec: 0.5
- command: print("typed", file=open("/app/by-python", "w"))
- command: exit()
- command: |
    cat > name <<EOF
    $NAME
    EOF
  block: true
  append_enter: false
- command: sleep 1000
  min_timeout_sec: 0.4
- command: C-c
  append_enter: false
- command: echo again >> twice
  block: true
- command: Up
  append_enter: false
- command: Enter
  append_enter: false
- command: tty > terminal && stty size > size
  min_timeout_sec: 0.1
"""
    return {
        "task.yaml": "instruction: Do it in a terminal.\nmax_agent_timeout_sec: 60\nmax_test_timeout_sec: 20\n",
        "Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "run-tests.sh": run_tests,
        "solution.yaml": solution,
    }


def archive() -> Files:
    """ADD unpacks; COPY takes wildcards, here-documents and links; RUN takes a list, a script, another shell."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        entry = tarfile.TarInfo("in/side")
        entry.size = 7
        tar.addfile(entry, io.BytesIO(b"packed\n"))
    dockerfile = """\
# escape=`
FROM debian:12
ARG NAME=plum
WORKDIR /app
ADD pack.tar unpacked/
COPY *.txt texts/
COPY <<END /etc/one.conf
name=$NAME
END
RUN ["touch", "by list"]
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN echo several | `
    cat > words
RUN <<'END'
set -e
ln -s texts/a.txt first
END
"""
    read = "cat unpacked/in/side texts/a.txt first /etc/one.conf words done | tr '\\n' ' '"
    test = f'[ "$({read})" = "$(cat /tests/it)" ]'
    return harbor(
        dockerfile,
        judge(f'[ -e "by list" ] && [ ! -e texts/c.md ] && {test}'),
        "echo done > done\n",
        environment__pack_DOT_tar=packed.getvalue().decode("ascii"),
        environment__a_DOT_txt="a\n",
        environment__c_DOT_md="c\n",
        tests__it="packed a a name=plum several done ",
    )


def final_step() -> Files:
    """Only the last step counts, and each step has a time limit and a user of its own."""
    files = several_steps()
    files["task.toml"] = 'multi_step_reward_strategy = "final"\n' + files["task.toml"]
    return files


def pip_there() -> Files:
    """What RUN asks of pip is there already, by name and from a file."""
    return harbor(
        "FROM python:3.12\nWORKDIR /app\nCOPY requirements.txt .\n"
        "RUN pip install --no-cache-dir -r requirements.txt && python3 -m pip install pip\n",
        judge("python3 -c 'import pip' && [ -e /app/done ]"),
        "touch done\n",
        environment__requirements_DOT_txt="# what is wanted\npip>=1\n",
    )


SOUND: Mapping[str, Callable[[], Files]] = {
    "awk_sum": awk_sum,
    "perl_user": perl_user,
    "root_reads_all": root_reads_all,
    "node_keys": node_keys,
    "c_program": c_program,
    "packages_there": packages_there,
    "two_verdicts": two_verdicts,
    "partial": partial,
    "several_steps": several_steps,
    "terminal_bench": terminal_bench,
    "typed": typed,
    "archive": archive,
    "final_step": final_step,
    "pip_there": pip_there,
}
WANTS = {"node_keys": "node", "c_program": "gcc", "perl_user": "perl", "root_reads_all": "perl", "awk_sum": "awk",
         "typed": "python3"}  # fmt: skip
"""Task → program that this machine must have."""


def write(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


class Runs:
    """Runs tasks with images below one folder."""

    def __init__(self, folder: Path, ordinary: bool) -> None:
        self.folder = folder
        self.ordinary = ordinary
        self.images = folder / "images"
        self.blobs: dict[str, bytes] = {}

    def task(self, files: Files, name: str = "task") -> Path:
        return write(self.folder / "tasks" / name, files)

    def script(self, text: str, name: str = "act.sh") -> str:
        return f"script:{write(self.folder / 'scripts', {name: text}) / name}"

    def __call__(
        self, path: Path, policy: str, *, num: int = 1, seed: int = 0, concurrency: int | None = None
    ) -> list[Result]:
        return run_episodes(
            find_tasks(path),
            parse_policy(policy),
            num=num,
            seed=seed,
            run="test",
            images=self.images,
            keep_blob=self.keep,
            concurrency=concurrency,
        )

    def keep(self, data: bytes) -> str:
        from flightschool.digest import digest

        self.blobs[digest(data)] = data
        return digest(data)


@pytest.fixture(scope="session")
def sandboxes() -> str:
    """Why nothing can be run here; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "sandboxes need Linux"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import asyncio; from flightschool.sandbox import NativeProvider as P\n"
            "async def main():\n p = P()\n print((await p.try_out()).works)\n await p.aclose()\nasyncio.run(main())",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "" if done.stdout.strip() == "True" else f"no native sandbox: {done.stdout}{done.stderr[-500:]}"


@pytest.fixture
def runs(tmp_path: Path, sandboxes: str) -> Runs:
    needs.sandbox(sandboxes)
    return Runs(tmp_path, ordinary=os.geteuid() != 0)


@pytest.fixture
def as_ordinary(sandboxes: str) -> Callable[[Callable[[], None]], None]:
    """Run plain code as an ordinary user: in a forked child that gave up root for good."""
    needs.sandbox(sandboxes)
    return _in_child if os.geteuid() == 0 else lambda work: work()


def _in_child(work: Callable[[], None]) -> None:
    told, tells = os.pipe()
    codecs.lookup("utf-8-sig")  # loaded late, from where that user may not read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of forking beside threads; none of ours hold locks
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(told)
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            interpreter.cache_clear()
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must never run on into pytest
            os.write(tells, traceback.format_exc().encode()[-60000:])
        finally:
            os._exit(code)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        pytest.fail(f"as an ordinary user:\n{text}", pytrace=False)


def skip_without(name: str) -> None:
    if name == "pip_there" and not list(Path("/usr/lib/python3/dist-packages").glob("pip-*")):
        needs.skip("a pip of the system's Python", "install python3-pip with this machine's package manager")
    if program := WANTS.get(name):
        needs.programs(program)


def told(arguments: list[str], cwd: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command line, in this process."""
    from flightschool.cli import main

    before, said = Path.cwd(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setenv("XDG_CACHE_HOME", str(cwd / "cache"))
        os.chdir(cwd)
        try:
            code = main([*arguments, "--json"])
        finally:
            os.chdir(before)
    return code, json.loads(said.getvalue())


def told_by_a_program(arguments: list[str], cwd: Path) -> tuple[int, dict[str, Any]]:
    """The same of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "flightschool.cli", *arguments, "--json"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")},
    )
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def tell() -> Callable[[list[str], Path], tuple[int, dict[str, Any]]]:
    return told


@pytest.fixture(params=sorted(SOUND))
def sound(request: pytest.FixtureRequest) -> tuple[str, Files]:
    skip_without(request.param)
    return request.param, SOUND[request.param]()


@pytest.fixture
def kit() -> Kit:
    return Kit()


class Kit:
    """Helpers for tests in one place, since test folders are no packages."""

    told_by_a_program = staticmethod(told_by_a_program)

    harbor = staticmethod(harbor)
    judge = staticmethod(judge)
    write = staticmethod(write)
    skip_without = staticmethod(skip_without)
    sound = SOUND
    toml = TOML
    head = TEST_HEAD
    ordinary = ORDINARY
    runs = Runs
