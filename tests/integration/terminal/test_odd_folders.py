"""Folders as other people write them: odd names, links, line ends, users, loud programs. The oracle passes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.environments.terminal import export_harbor, read_folder
from flightschool.records import Outcome
from flightschool.rollouts.terminal import Episode

pytestmark = [pytest.mark.integration, pytest.mark.long]


def odd_names(kit: Any, folder: Path) -> None:
    """Names with spaces, quotes, other letters; users that no account file knows; folders told relatively."""
    dockerfile = """\
FROM debian:12 AS made
LABEL who="some one" kind='odd'
EXPOSE 8080/tcp
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s CMD true
ENV ONE="a b" TWO=c\\ d THREE=$ONE/x
WORKDIR /srv
WORKDIR deep/er
COPY ["with space.txt", "größe.txt", "./"]
COPY --chown=1234:2345 "quo'te" /srv/taken
RUN mkdir -p /srv/out && chown 1234:2345 /srv/out
FROM made
USER 1234:2345
"""
    said = "1234 2345 /srv/deep/er space size quote a b c d"
    files = kit.harbor(
        dockerfile,
        kit.judge(f'[ "$(cat /srv/out/all)" = "{said}" ] && [ "$THREE" = "/x" ]'),
        "echo $(id -u) $(id -g) $(pwd) $(cat 'with space.txt' größe.txt /srv/taken) $ONE $TWO > /srv/out/all\n",
    )
    more = {"with space.txt": "space\n", "größe.txt": "size\n", "quo'te": "quote\n"}
    kit.write(folder, files | {f"environment/{name}": text for name, text in more.items()})


def links(kit: Any, folder: Path) -> None:
    """Tests, solution and sources that are links inside the folder; the solution is in Tcl."""
    solution = (
        "#!/usr/bin/env tclsh\nset in [open rows]\nset n 0\nwhile {[gets $in row] >= 0} {incr n [lindex $row 1]}\n"
    )
    solution += "set out [open sum w]\nputs $out $n\n"
    files = kit.harbor("FROM debian:12\nWORKDIR /app\nCOPY rows .\n", kit.judge('[ "$(cat /app/sum)" = 42 ]'), solution)
    kit.write(folder, files)
    (folder / "tests").rename(folder / "judging")
    (folder / "tests").symlink_to("judging")
    (folder / "solution/solve.sh").rename(folder / "solution/real.tcl")
    (folder / "solution/solve.sh").symlink_to("real.tcl")
    kit.write(folder / "environment", {"data/real": "a 40\nb 2\n"})
    (folder / "environment/rows").symlink_to("data/real")


def line_ends(kit: Any, folder: Path) -> None:
    """Written on another system: carriage returns, a byte order mark, keywords in small letters, tabs."""
    dockerfile = "from debian:12\n\n# a comment\nworkdir\t/app\nrun echo one \\\n\t# within\n\t&& echo two > two\n"
    condition = '[ "$(cat /app/two) $(cat /app/three)" = "two three" ]'
    files = kit.harbor(dockerfile, kit.judge(condition), "echo three > three\n")
    kit.write(folder, files)
    (folder / "environment/Dockerfile").write_bytes(dockerfile.replace("\n", "\r\n").encode())
    (folder / "task.toml").write_bytes(files["task.toml"].replace("\n", "\r\n").encode())
    (folder / "instruction.md").write_bytes("\ufeffFaites-le, s'il vous plaît: 三.\r\n".encode())


def loud(kit: Any, folder: Path) -> None:
    """Prints without end, leaves thousands of files, closes some of them to everybody."""
    solution = (
        "head -c 300000000 /dev/zero | tr '\\0' y; head -c 50000000 /dev/urandom >&2\n"
        "mkdir many; for n in $(seq 5000); do : > many/$n; done; chmod 000 many/1; truncate -s 20M hole\n"
        "ln -s nowhere loose; ln many/2 many/again; setfattr -n user.x -v y many/3 2>/dev/null\n"
    )
    test = kit.judge('[ "$(ls /app/many | wc -l)" = 5001 ] && [ -L /app/loose ]')
    test += "head -c 100000000 /dev/zero | tr '\\0' x\n"
    kit.write(folder, kit.harbor("FROM debian:12\nWORKDIR /app\n", test, solution))


def users(kit: Any, folder: Path) -> None:
    """One user builds, another acts, a third judges; each with a home, or none, of their own."""
    dockerfile = """\
FROM debian:12
ARG GROUP=clerks
RUN groupadd $GROUP && useradd -m -d /srv/own -g $GROUP -s /bin/sh app-srv_1 && useradd -r -M -d /nonexistent judge
RUN install -d -o app-srv_1 -g clerks -m 777 /srv/x
USER app-srv_1
RUN echo $(whoami) $HOME > /srv/x/built
WORKDIR /srv/x
USER root
"""
    toml = kit.toml.replace("[agent]\n", '[agent]\nuser = "app-srv_1"\n')
    toml = toml.replace("[verifier]\n", '[verifier]\nuser = "judge"\n')
    said = '[ "$(cat /srv/x/built) $(cat /srv/x/acted) $(whoami)" = "app-srv_1 /srv/own app-srv_1 clerks judge" ]'
    files = kit.harbor(dockerfile, kit.judge(said), "echo $(whoami) $(id -gn) > acted\n")
    kit.write(folder, files | {"task.toml": toml})


def many_keys(kit: Any, folder: Path) -> None:
    """Steps judged by several numbers, of which the next step asks for one that is not the reward."""
    steps = '[[steps]]\nname = "un"\nmin_reward = { speed = 0.5 }\n[steps.agent]\ntimeout_sec = 9\n'
    steps += '[[steps]]\nname = "deux"\n[steps.verifier]\ntimeout_sec = 9\n'
    speed = '[ -e a ] && s=0.75 || s=0.25; echo "{\\"reward\\": 1, \\"speed\\": $s}" > /logs/verifier/reward.json\n'
    moved = "[ -e b ] && [ ! -e a ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n"
    files = {
        "task.toml": 'multi_step_reward_strategy = "final"\n' + kit.toml + steps,
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "steps/un/instruction.md": "Make a.\n",
        "steps/un/tests/test.sh": f"mkdir -p /logs/verifier; {speed}",
        "steps/un/solution/solve.sh": "touch a\n",
        "steps/deux/instruction.md": "Make b of a.\n",
        "steps/deux/tests/test.sh": f"mkdir -p /logs/verifier; {moved}",
        "steps/deux/solution/solve.sh": "#!/usr/bin/perl\nrename 'a', 'b' or die;\n",
    }
    kit.write(folder, files)


def mounts_of_builds(kit: Any, folder: Path) -> None:
    """A build with a cache mount, a script in another language, a pattern of names and an ignored file."""
    dockerfile = """\
# syntax=docker/dockerfile:1
FROM python:3.12-slim
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /app
COPY . ./
RUN --mount=type=cache,target=/var/cache/own echo cached > /var/cache/own/x && ls > listed
RUN <<EOF python3
import pathlib
pathlib.Path("by-python").write_text("made\\n")
EOF
COPY --chmod=0555 *.sh [ab]?.dat /opt/
"""
    seen = '"$(echo $(ls /opt | grep -v present) $(cat /app/by-python))" = "a1.dat b2.dat run.sh made"'
    files = kit.harbor(
        dockerfile,
        kit.judge(f"[ {seen} ] && [ ! -e /app/secret ] && [ -e /app/done ] && [ ! -e /var/cache/own/x ]"),
        "/opt/run.sh\n",
    )
    more = {"a1.dat": "", "b2.dat": "", "c3.dat": "", "secret": "", ".dockerignore": "secret\n"}
    more["run.sh"] = "#!/bin/sh\n: > done\n"
    kit.write(folder, files | {f"environment/{name}": text for name, text in more.items()})


FOLDERS: dict[str, Callable[[Any, Path], None]] = {
    one.__name__: one for one in (odd_names, links, line_ends, loud, users, many_keys, mounts_of_builds)
}
NEEDS = {"links": "tclsh", "many_keys": "perl"}


def total(results: list[Any]) -> float | None:
    (episode,) = results
    assert isinstance(episode, Episode), episode
    assert episode.attempt.outcome is Outcome.SCORED, episode.attempt.detail
    return None if episode.attempt.reward is None else episode.attempt.reward.total


@pytest.mark.parametrize("name", FOLDERS)
def test_the_oracle_passes_nobody_does_not_and_so_it_is_with_the_exported_folder(
    runs: Any, kit: Any, name: str
) -> None:
    if program := NEEDS.get(name):
        needs.programs(program)
    task = runs.folder / "tasks" / name
    FOLDERS[name](kit, task)
    assert total(runs(task, "oracle")) == 1.0
    assert total(runs(task, "noop")) == 0.0
    exported = export_harbor(read_folder(task), runs.folder / "exported" / name)
    assert exported.digest == read_folder(task).digest
    assert total(runs(Path(exported.folder), "oracle")) == 1.0
