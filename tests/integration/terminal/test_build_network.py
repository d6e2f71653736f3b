"""Builds fetch on request only, and what is built with a network is attempted and graded without one."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.audit.terminal import FolderAudit
from flightschool.audit.terminal.auditing import audit_folders
from flightschool.audit.terminal.journal import Journal
from flightschool.rollouts.terminal import Episode, NotRun, find_tasks, parse_policy, replay_terminal, run_episodes

pytestmark = pytest.mark.integration
HOST = "127.0.0.9"
"""On the loopback, and no name of it that a reader of commands knows: asking it counts as fetching."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of files on this machine's loopback; its address."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served/data").write_text("fetched\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(tmp_path / "served"))

        def log_message(self, format: str, *words: Any) -> None:  # noqa: A002 - the base class's name
            del format, words

    with http.server.ThreadingHTTPServer((HOST, 0), Quiet) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://{HOST}:{made.server_address[1]}"
        made.shutdown()
        thread.join()


def flown(runs: Any, task: Path, policy: str, *, build_network: bool) -> Any:
    (result,) = run_episodes(
        find_tasks(task),
        parse_policy(policy),
        num=1,
        seed=0,
        run="test",
        images=runs.images,
        build_network=build_network,
    )
    return result


def test_a_step_that_fetches_is_lent_the_network_on_request_only(
    runs: Any, kit: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.programs("curl", path="/usr/bin:/bin")
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    fetch = f"curl -fsS -m 20 {server}/data"
    files = kit.harbor(
        f"FROM debian:12\nWORKDIR /app\nRUN {fetch} -o data\nRUN ls > without\n",
        kit.judge(
            '[ "$(cat /app/data /app/done)" = "fetched\nno network" ] && [ ! -s /etc/resolv.conf ]'.replace("\\n", "\n")
        ),
    )
    task = runs.task(files)
    connect = f"echo > /dev/tcp/{HOST}/{server.rpartition(':')[2]}"
    policy = runs.script(
        f"#!/bin/bash\nif ({connect}) 2>/dev/null; then echo reached; else echo no network; fi > done\n"
    )
    without = flown(runs, task, policy, build_network=False)
    assert isinstance(without, NotRun)
    assert (without.need, without.reason.startswith("environment/Dockerfile:3: ")) == ("network", True)
    lent = flown(runs, task, policy, build_network=True)
    assert isinstance(lent, Episode)
    assert (lent.attempt.detail, lent.attempt.reward and lent.attempt.reward.total) == ("", 1.0)
    assert lent.details is not None
    assert lent.details.networked == ("environment/Dockerfile:3",)
    assert isinstance(flown(runs, task, policy, build_network=False), NotRun), "what was built so is not used otherwise"
    for name in ("served/data", "served"):
        path = runs.folder / name
        path.unlink() if path.is_file() else path.rmdir()
    again = replay_terminal(lent.attempt, lent.details, parse_policy(policy), images=runs.images)
    assert again.replayed_digest == lent.attempt.digest, "its image is kept, and nothing is fetched again"


def test_tests_that_fetch_are_not_lent_it(runs: Any, kit: Any, server: str) -> None:
    task = runs.task(kit.harbor("FROM debian:12\n", f"{kit.head}curl -fsS {server}/data\n"))
    result = flown(runs, task, "noop", build_network=True)
    assert isinstance(result, NotRun)
    assert (result.need, "tests/test.sh" in result.reason) == ("network", True)


@pytest.mark.long
def test_an_audit_lends_it_likewise_and_tests_have_what_the_build_installed(
    runs: Any, kit: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.programs("curl", "python3", path="/usr/bin:/bin")
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    install = (
        "d=$(python3 -c 'import site; print(site.getsitepackages()[0])')/toy-1.2.dist-info; mkdir -p $d;"
        " printf 'Metadata-Version: 2.1\\nName: toy\\nVersion: 1.2\\n' > $d/METADATA"
    )
    task = runs.task(
        kit.harbor(
            f"FROM debian:12\nWORKDIR /app\nRUN curl -fsS -m 20 {server}/data -o data\nRUN {install}\n",
            kit.judge("pip install toy==1.2 >&2 && cmp -s /app/data /app/done"),
            "cp data done\n",
        )
    )

    def audited(*, build_network: bool) -> FolderAudit:
        found: list[FolderAudit] = []
        journal = Journal(runs.folder / "journal", "run")
        audit_folders(
            find_tasks(task),
            images=runs.images,
            journal=journal,
            repeats=2,
            build_network=build_network,
            on_audit=found.append,
        )
        return found[0]

    without = audited(build_network=False)
    assert without.unaudited_because.startswith("needs network: environment/Dockerfile:3: ")
    assert "--build-network" in without.unaudited_because
    lent = audited(build_network=True)
    assert (lent.unaudited_because, lent.num_episodes > 10) == ("", True), lent


@pytest.mark.parametrize("words", [("rollout", "desk", "--policy", "noop"), ("audit", "desk")])
def test_an_environment_has_no_build(words: tuple[str, ...], tell: Any, tmp_path: Path) -> None:
    code, told = tell([*words, "--build-network"], tmp_path)
    assert (code, told["error"]["where"]) == (2, "--build-network")
