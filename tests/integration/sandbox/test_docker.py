"""Docker without an engine: what is asked of one, and the agent on the far side of its streams.

A stand-in answers to ``docker``: it takes only the options that it knows, builds the walls that they name by
bubblewrap, and runs the words that it was given. What a real engine does with them is not shown here; where one
answers, the contract suite runs on it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.errors import InputError, NotFoundError
from flightschool.sandbox import DockerProvider, Limits, ReadOnlyMount, SandboxSpec, Stopped, find_bwrap
from flightschool.sandbox.launching import interpreter

pytestmark = pytest.mark.integration
MIB = 1 << 20

ENGINE = """#!PYTHON
import json, os, sys
words, told = sys.argv[1:], "FOLDER/asked"
with open(told, "a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] != "run":
    sys.exit(0)
known = {"--rm": 0, "--interactive": 0, "--read-only": 0, "--pull": 1, "--name": 1, "--network": 1, "--cap-drop": 1,
         "--security-opt": 1, "--user": 1, "--hostname": 1, "--pids-limit": 1, "--memory": 1, "--memory-swap": 1,
         "--tmpfs": 1, "--shm-size": 1, "--workdir": 1, "--mount": 1}
walls, at, options = ["BWRAP", "--unshare-all", "--as-pid-1", "--die-with-parent", "--clearenv"], 1, {}
walls += ["--ro-bind", "/usr", "/usr"]
while words[at].startswith("-"):
    count = known[words[at]]
    options.setdefault(words[at], []).append(words[at + count])
    at += 1 + count
for link in ("/bin", "/lib", "/lib64"):
    if os.path.islink(link):
        walls += ["--symlink", os.readlink(link), link]
uid, gid = options["--user"][0].split(":")
walls += ["--uid", uid, "--gid", gid, "--hostname", options["--hostname"][0], "--proc", "/proc", "--dev", "/dev"]
for one in options["--tmpfs"]:
    path, _, rest = one.partition(":")
    size = dict(part.partition("=")[::2] for part in rest.split(","))["size"]
    walls += ["--perms", "1777", "--size", size, "--tmpfs", path]
for one in options["--mount"]:
    parts = dict(part.partition("=")[::2] for part in one.split(","))
    walls += ["--ro-bind", parts["source"], parts["target"]]
if not "PREFIX".startswith("/usr"):
    walls += ["--ro-bind", "PREFIX", "PREFIX"]
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
command = ["PROGRAM" if word == "python3" else word for word in words[at + 1:]]
os.execv(walls[0], [*walls, "--chdir", options["--workdir"][0], "--", *command])
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the stand-in writes what it was asked to."""
    bwrap = find_bwrap()
    if bwrap is None:
        needs.skip("bubblewrap, to stand in for an engine", "`make install` brings it on Linux")
    python = interpreter(65534 if os.geteuid() == 0 else None)
    text = ENGINE.replace("PYTHON", sys.executable).replace("FOLDER", str(tmp_path)).replace("BWRAP", bwrap)
    (tmp_path / "docker").write_text(text.replace("PREFIX", python.prefix).replace("PROGRAM", python.program))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "asked"


def asked(engine: Path, verb: str) -> list[list[str]]:
    lines: list[list[str]] = [json.loads(line) for line in engine.read_text().splitlines()]
    return [words for words in lines if words[0] == verb]


def values(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


async def test_the_walls_are_asked_for_and_the_agent_serves_through_streams(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "text").write_text("given")
    for path in (tmp_path, *list(tmp_path.parents)[:2]):
        path.chmod(path.stat().st_mode | 0o755)
    mounts = (ReadOnlyMount(source=str(tmp_path / "inputs"), target="/inputs"),)
    spec = SandboxSpec(limits=Limits(pids=40, memory_bytes=256 * MIB), mounts=mounts, hostname="far")
    provider = DockerProvider()
    async with provider.open(spec) as box:
        told = await box.exec("id -un; cat /inputs/text; hostname; echo err >&2; exit 3")
        assert (told.exit_code, told.stdout, told.stderr) == (3, b"user\ngivenfar\n", b"err\n")
        assert not (await box.exec("touch /inputs/x /usr/x")).ok
        await box.put("/home/user/a/b", b"content")
        assert await box.get("/home/user/a/b") == b"content"
        with pytest.raises(NotFoundError):
            await box.get("/home/user/none")
        for outside in ("/home/user/../../usr/bin/env", "/usr/bin/env", "/dev/null", "/proc/self/environ"):
            with pytest.raises(InputError, match="refused"):
                await box.get(outside)
        await box.exec("ln -s /etc/passwd x")
        with pytest.raises(InputError, match="symbolic link"):
            await box.get("/home/user/x")
        late = await box.exec("sleep 100 & sleep 100", timeout_s=0.3, sweep_on_timeout=True)
        assert late.stopped is Stopped.TIMEOUT
        assert (await box.usage()).processes == 0
        long = await box.exec("head -c 5000000 /dev/zero", output_bytes=1000)
        assert (len(long.stdout), long.stdout_truncated) == (1000, True)
        status = (await box.exec("grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status")).stdout
        assert status.split() == [b"CapEff:", b"0" * 16, b"NoNewPrivs:", b"1", b"Seccomp:", b"2"]
        lines = {line.limit for line in box.enforcement}
        assert set(Limits.__struct_fields__) <= lines
    await provider.aclose()
    (words,) = asked(engine, "run")
    assert {"--rm", "--read-only", "--interactive"} <= set(words)
    most = str((256 + 512 + 32) * MIB)  # processes, files and the agent: the watcher is to be first
    for option, wanted in {
        "--network": "none", "--cap-drop": "ALL", "--security-opt": "no-new-privileges", "--user": "1000:1000",
        "--pids-limit": "40", "--memory": most, "--memory-swap": most, "--pull": "never",
    }.items():  # fmt: skip
        assert values(words, option) == [wanted]
    assert all("readonly" in mount.split(",") for mount in values(words, "--mount"))
    assert not any("docker.sock" in word or word == "--privileged" for word in words)


def test_a_client_without_an_engine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2; exit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match="no engine answers: Cannot connect"):
        DockerProvider()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="docker not found"):
        DockerProvider()


async def test_a_tree_is_refused_before_an_engine_is_asked(engine: Path, tmp_path: Path) -> None:
    from flightschool.sandbox import ImageTree

    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="image tree"):
        await DockerProvider().start(SandboxSpec(root=ImageTree(path=str(tmp_path / "tree"))))
    assert asked(engine, "run") == []


def test_what_is_asked_is_written_once(engine: Path) -> None:
    """The stand-in itself: an option that it does not know ends it."""
    import subprocess

    words: list[Any] = ["docker", "run", "--privileged", "image", "true"]
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0
