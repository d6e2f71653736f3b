"""Attacks on what is read from a sandbox and on what judges it: links, FIFOs, late writers, planted files."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import needs
from tests.integration.sandbox.conftest import SECRET

from flightschool.errors import InputError
from flightschool.sandbox import ReadOnlyMount, SandboxProvider, SandboxSpec
from flightschool.sandbox.live import AgentSandbox

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration


def test_a_late_writer_changes_nothing_that_is_harvested(native: Place) -> None:
    """It forges the verdict as soon as it has been read: reading a live sandbox is taken in, a stopped one is not."""
    forge = """
(while [ ! -e go ]; do sleep 0.01; done; echo 1.0 > verdict; : > forged) >/dev/null 2>&1 &
(setsid sh -c 'while :; do sleep 0.01; [ -e go ] && echo 1.0 > verdict2; done' >/dev/null 2>&1 &)
echo 0.0 > verdict; echo 0.0 > verdict2
"""

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as live:
            await live.exec(forge)
            assert await live.get("/home/user/verdict") == b"0.0\n"
            await live.exec("touch go; until [ -e forged ]; do sleep 0.01; done")
            assert await live.get("/home/user/verdict") == b"1.0\n", "graded while it lives, the writer wins"
        box = await provider.start(SandboxSpec())
        await box.exec(forge)
        await box.stop()
        for name in ("verdict", "verdict2"):
            assert await box.get(f"/home/user/{name}") == b"0.0\n"
        await asyncio.sleep(0.1)
        assert await box.get("/home/user/verdict2") == b"0.0\n"
        await box.close()

    native.run(body)


@pytest.mark.parametrize("plant", ["ln -s {secret} x", "ln -s / d; ln -s d{secret} x"])
def test_links_planted_for_the_harvest_lead_nowhere(native: Place, grader: Path, plant: str) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            assert isinstance(box, AgentSandbox)
            await box.exec(plant.format(secret=grader / "answer"))
            root = box._root_fd
            assert root is not None
            naive = os.open("home/user/x", os.O_RDONLY, dir_fd=root)
            with os.fdopen(naive) as file:
                assert file.read() == SECRET, "an ordinary open is taken in"
            with pytest.raises(InputError, match="symbolic link"):
                await box.get("/home/user/x")

    native.run(body)


def test_a_fifo_planted_for_the_harvest_does_not_hang_it(native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            assert isinstance(box, AgentSandbox)
            await box.exec("mkfifo x")
            reader = os.fork()
            if reader == 0:
                os.open("home/user/x", os.O_RDONLY, dir_fd=box._root_fd)
                os._exit(0)
            await asyncio.sleep(0.2)
            hangs = os.waitpid(reader, os.WNOHANG) == (0, 0)
            os.kill(reader, signal.SIGKILL)
            os.waitpid(reader, 0)
            assert hangs, "an ordinary open waits for a writer that never comes"
            with pytest.raises(InputError, match="not a regular file"):
                await asyncio.wait_for(box.get("/home/user/x"), 5)

    native.run(body)


@pytest.mark.parametrize(("plant", "path", "why"), [
    ("echo mine > f; ln f x", "home/user/x", "a hard link"),
    ("ln -s /dev/zero x", "home/user/x", "a symbolic link"),
    ("true", "dev/zero", "outside"),
])  # fmt: skip
def test_second_names_and_devices_are_not_harvested(native: Place, plant: str, path: str, why: str) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            assert isinstance(box, AgentSandbox)
            await box.exec(plant)
            naive = os.open(path, os.O_RDONLY, dir_fd=box._root_fd)
            with os.fdopen(naive, "rb") as file:
                assert file.read(4), "an ordinary open is taken in"
            with pytest.raises(InputError, match=why):
                await asyncio.wait_for(box.get(f"/{path}"), 5)

    native.run(body)


PLANT = """
mkdir -p ~/bin && printf '#!/bin/sh\\necho 1.0\\n' > ~/bin/score && chmod 755 ~/bin/score
echo 'print(1.0); raise SystemExit' > ~/json.py; cp ~/json.py ~/sitecustomize.py; cp ~/json.py ~/conftest.py
printf '[pytest]\\naddopts = --collect-only\\n' > ~/pytest.ini
"""
GRADE = "import json, os\nprint(json.loads(open('answer').read()) * 0.5)"


def test_a_planted_module_forges_a_verdict_only_where_it_was_planted(native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        program, mounts = native.python()
        spec = SandboxSpec(mounts=mounts)
        async with provider.open(spec) as box:
            await box.exec(PLANT)
            await box.exec("echo 0 > answer")
            forged = await box.exec([program, "-c", GRADE])
            assert forged.stdout == b"1.0\n", "graded where the agent worked, the plant wins"
            await box.stop()
            answer = await box.get("/home/user/answer")
        async with provider.open(spec) as fresh:
            await fresh.put("/home/user/answer", answer)
            graded = await fresh.exec([program, "-c", GRADE])
            assert graded.stdout == b"0.0\n"
            assert (await fresh.exec("ls -A ~; command -v score")).stdout == b"answer\n"

    native.run(body)


CONFTEST = "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
WAYS_TO_FORGE: dict[str, tuple[str, str, list[str], dict[str, str]]] = {
    "sitecustomize": (
        "sitecustomize.py",
        "import os, sys; print(1.0, flush=True); os._exit(0)",
        ["PYTHON", "-c", "print(0.0)"],
        {"PYTHONPATH": "/home/user"},
    ),
    "a program on PATH": (
        "bin/score",
        "#!/bin/sh\necho 1.0\n",
        ["sh", "-c", "score 2>/dev/null || echo 0.0"],
        {"PATH": "/home/user/bin:/usr/bin:/bin"},
    ),
    "conftest.py": ("conftest.py", CONFTEST, ["sh", "-c", "PYTEST && echo 1.0 || echo 0.0"], {}),
    "pytest.ini": (
        "pytest.ini",
        "[pytest]\naddopts = --collect-only\n",
        ["sh", "-c", "PYTEST && echo 1.0 || echo 0.0"],
        {},
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_FORGE)
def test_a_plant_forges_a_verdict_only_where_it_was_planted(native: Place, way: str) -> None:
    path, content, grade, env = WAYS_TO_FORGE[way]
    site = Path(pytest.__file__).parents[1]
    if "PYTEST" in grade[-1] and native.dropped and not os.access(site, os.R_OK):
        needs.skip("a pytest that ordinary users may read", "install the environment outside of root's own folder")

    async def body(provider: SandboxProvider) -> None:
        program, mounts = native.python()
        spec = SandboxSpec(mounts=(*mounts, ReadOnlyMount(source=str(site), target="/site")))
        plain = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH=/site"
        run = f"{plain} {program} -m pytest -q -p no:cacheprovider test_it.py >/dev/null 2>&1"
        words = [word.replace("PYTHON", program) if word == "PYTHON" else word.replace("PYTEST", run) for word in grade]
        tests = b"def test_it():\n    assert open('answer').read() == 'right'\n"
        async with provider.open(spec) as box:
            await box.put(f"/home/user/{path}", content.encode(), mode=0o755)
            await box.put("/home/user/answer", b"wrong")
            await box.put("/home/user/test_it.py", tests)
            assert (await box.exec(words, env=env)).stdout == b"1.0\n", "where the agent worked, the plant wins"
            await box.stop()
            answer = await box.get("/home/user/answer")
        async with provider.open(spec) as fresh:
            await fresh.put("/home/user/answer", answer)
            await fresh.put("/home/user/test_it.py", tests)
            assert (await fresh.exec(words, env=env)).stdout == b"0.0\n"
            await fresh.put("/home/user/answer", b"right")
            if "PYTEST" in grade[-1]:
                assert (await fresh.exec(words, env=env)).stdout == b"1.0\n", "isolation makes no false failure"

    native.run(body)
