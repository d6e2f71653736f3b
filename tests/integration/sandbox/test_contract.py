"""What every provider keeps. A new one is added to ``conftest.PLACES`` and must pass all of it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from tests import needs

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.sandbox import (
    DEFAULT_ENV,
    MECHANISMS,
    Limits,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    Stopped,
    WarmPool,
    best_provider,
    try_mechanisms,
)

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration
MIB = 1 << 20
SPEC = SandboxSpec()


def test_a_command_tells_code_streams_signal_and_times(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            told = await box.exec("echo out; echo err >&2; exit 3")
            assert (told.exit_code, told.signal, told.stdout, told.stderr) == (3, None, b"out\n", b"err\n")
            assert not told.ok
            assert not told.stdout_truncated
            killed = await box.exec("kill -TERM $$")
            assert (killed.exit_code, killed.signal) == (None, signal.SIGTERM)
            words = await box.exec(["printf", "%s|", "a b", "$HOME", "*"])
            assert words.stdout == b"a b|$HOME|*|"
            busy = await box.exec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1")
            assert busy.wall_s >= 0.1
            assert 0 < busy.cpu_s < busy.wall_s

    place.run(body)


def test_standard_input_larger_than_a_pipe_comes_through(place: Place) -> None:
    data = bytes(range(256)) * (3 * MIB // 256)

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            echoed = await box.exec(["cat"], stdin=data, output_bytes=4 * MIB)
            assert echoed.stdout == data
            unread = await box.exec(["true"], stdin=data)
            assert unread.ok
            empty = await box.exec(["cat"])
            assert empty.stdout == b""

    place.run(body)


def test_what_cannot_start_says_so_as_a_shell_would(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            missing = await box.exec(["no-such-program"])
            assert missing.exit_code == 127
            assert "no-such-program" in missing.failed_to_start
            folder = await box.exec(["/usr"])
            assert folder.exit_code == 126
            for wrong in ([], ["a\0b"]):
                with pytest.raises(InputError):
                    await box.exec(wrong)
            with pytest.raises(InputError):
                await box.exec(["true"], timeout_s=0)
            assert (await box.exec(["true"])).ok

    place.run(body)


def test_a_timeout_kills_the_session_and_its_daemons(place: Place) -> None:
    group = "sleep 1000 & (setsid sleep 1001 &) ; sleep 1002"

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            late = await box.exec("sleep 1000 & sleep 1002 | cat", timeout_s=0.3)
            assert late.timed_out
            assert late.signal == signal.SIGKILL
            assert 0.3 <= late.wall_s < 300
            assert (await box.usage()).processes == 0
            swept = await box.exec(group, timeout_s=0.3, sweep_on_timeout=True)
            assert swept.stopped is Stopped.TIMEOUT
            assert (await box.exec("ps ax -o args | grep -c '[s]leep 100'")).stdout.strip() == b"0"

    place.run(body)


def test_a_background_process_does_not_hold_a_command_up(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            started = await box.exec("sleep 1000 & echo started")
            assert started.stdout == b"started\n"
            assert started.wall_s < 300
            assert (await box.usage()).processes == 1
            assert await box.kill() == 1
            assert (await box.usage()).processes == 0

    place.run(body)


def test_a_gigabyte_of_output_is_cut_with_a_flag(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            seen: list[tuple[int, int]] = []
            long = await box.exec(
                f"head -c {1000 if not place.dropped else 50}000000 /dev/zero; echo short >&2",
                output_bytes=100_000,
                on_output=lambda stream, data: seen.append((stream, len(data))),
            )
            assert long.ok
            assert long.stdout == bytes(100_000)
            assert long.stdout_truncated
            assert (long.stderr, long.stderr_truncated) == (b"short\n", False)
            assert sum(size for stream, size in seen if stream == 1) == 100_000

    place.run(body)


def test_files_go_in_and_come_out(place: Place) -> None:
    big = bytes(range(256)) * (20 * MIB // 256)

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            await box.put("/home/user/deep/er/run.sh", b"#!/bin/sh\necho ran\n", mode=0o755)
            assert (await box.exec(["/home/user/deep/er/run.sh"])).stdout == b"ran\n"
            await box.put("/home/user/big", big)
            assert await box.get("/home/user/big") == big
            assert (await box.exec(["stat", "-c", "%a %u", "/home/user/big"])).stdout == b"644 1000\n"
            with pytest.raises(NotFoundError):
                await box.get("/home/user/none")
            with pytest.raises(InputError, match="too long"):
                await box.get("/home/user/big", most_bytes=1000)
            with pytest.raises(InputError):
                await box.put("relative", b"")
            assert (await box.exec("ls -A /home/user")).stdout == b"big\ndeep\n"

    place.run(body)


@pytest.mark.parametrize(
    ("plant", "path"),
    [
        ("ln -s /etc/passwd x", "x"),
        ("ln -s /etc d && true", "d/passwd"),
        ("ln -s ../../../../../../etc/passwd x", "x"),
        ("echo a > f; ln f x", "x"),
        ("mkfifo x", "x"),
        ("mkdir x", "x"),
        ("true", "../../dev/null"),
        ("true", "../../proc/self/environ"),
        ("true", "../../usr/bin/env"),
    ],
)
def test_harvest_takes_only_regular_files_of_the_sandbox(place: Place, plant: str, path: str) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            assert (await box.exec(plant)).ok
            with pytest.raises(InputError, match="refused"):
                await asyncio.wait_for(box.get(f"/home/user/{path}"), 10)
            with pytest.raises(InputError, match="refused"):
                await asyncio.wait_for(box.get("/home/user/../../../etc/hostname-of-no-one/../passwd"), 10)

    place.run(body)


def test_the_environment_is_clean_and_the_same_everywhere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret-of-the-caller")

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec(env={"TASK": "x y"})) as box:
            told = await box.exec(["env", "-0"], env={"ONE": "1"})
            variables = dict(line.split("=", 1) for line in told.stdout.decode().split("\0") if line)
            assert variables == {**DEFAULT_ENV, "TASK": "x y", "ONE": "1"}
            told = await box.exec("hostname; date +%Z; pwd; id -un; cat /proc/[0-9]*/environ 2>/dev/null")
            assert told.stdout.startswith(b"sandbox\nUTC\n/home/user\nuser\n")
            assert b"secret-of-the-caller" not in told.stdout

    place.run(body)


@pytest.mark.parametrize(
    ("program", "script", "expected"),
    [
        ("bash", "bash -c 'set -o pipefail; echo $((6*7)) | tr 4 x'", b"x2\n"),
        (
            "git",
            "git init -q && git -c user.name=a -c user.email=b commit -q --allow-empty -m c && git log --format=%s",
            b"c\n",
        ),
        ("node", "node -e 'console.log(6*7)'", b"42\n"),
        ("mkfifo", "mkfifo p && (echo through > p &) && cat p", b"through\n"),
        ("script", "script -qec 'test -t 1 && echo terminal' /dev/null | tr -d '\\r'", b"terminal\n"),
        (
            "tmux",
            "tmux new-session -d -s s 'echo in-tmux > t; sleep 9' && until [ -s t ]; do sleep 0.05; done; cat t",
            b"in-tmux\n",
        ),
    ],
)
def test_ordinary_tools_work(place: Place, program: str, script: str, expected: bytes) -> None:
    needs.programs(program, path="/usr/bin:/bin")

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            told = await box.exec(script, timeout_s=30)
            assert told.stdout == expected, told

    place.run(body)


def test_a_python_server_of_the_task_is_reached_and_nothing_else(place: Place) -> None:
    script = """
import os, socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    peer, _ = server.accept()
    peer.sendall(b"hello")
threading.Thread(target=serve, daemon=True).start()
print(socket.create_connection(server.getsockname()).recv(9).decode())
try:
    socket.create_connection(("192.0.2.1", 80), timeout=3)
    print("reached")
except OSError as error:
    print(type(error).__name__, sorted(os.listdir("/proc/self/net"))[:0])
"""

    async def body(provider: SandboxProvider) -> None:
        program, mounts = place.python()
        async with provider.open(SandboxSpec(mounts=mounts)) as box:
            told = await box.exec([program, "-c", script])
            assert told.stdout == b"hello\nOSError []\n", told

    place.run(body)


def test_nothing_carries_over_and_commands_run_side_by_side(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            planted = "echo canary > ~/conftest.py; echo c > /tmp/canary; echo c > /dev/shm/canary; mkdir -p ~/.config"
            assert (await box.exec(planted)).ok
            assert (await box.exec("ls /tmp /dev/shm ~")).stdout.count(b"c") >= 3
        async with provider.open(SPEC) as box, provider.open(SPEC) as other:
            assert (await box.exec("ls -A /tmp /dev/shm ~ | grep -v :")).stdout.strip() == b""
            await all_at_once([box, other], 4)

    place.run(body)


async def all_at_once(boxes: list[Sandbox], num: int) -> None:
    """Commands that end only once all of all sandboxes have begun: one after the other they never would."""
    begun = 0
    everyone = asyncio.Event()

    def note(_: int, data: bytes) -> None:
        nonlocal begun
        begun += data.count(b"begun")
        if begun == len(boxes) * num:
            everyone.set()

    script = "echo begun; until [ -e /tmp/go ]; do sleep 0.02; done; echo $((1+1))"
    running = [asyncio.create_task(box.exec(script, on_output=note)) for box in boxes for _ in range(num)]
    await asyncio.wait_for(everyone.wait(), 50)
    for box in boxes:
        await box.put("/tmp/go", b"")
    assert {one.stdout for one in await asyncio.gather(*running)} == {b"begun\n2\n"}


def test_limits_end_the_command_with_their_name(place: Place) -> None:
    limits = Limits(pids=24, memory_bytes=96 * MIB, disk_bytes=16 * MIB, cpu_s=0.5, inodes=600)

    async def body(provider: SandboxProvider) -> None:
        program, mounts = place.python()
        async with provider.open(SandboxSpec(limits=limits, mounts=mounts)) as box:
            disk = await box.exec(
                "for i in 1 2 3 4; do head -c 8000000 /dev/zero > f$i; done; cat f* | wc -c; rm -f f*"
            )
            assert int(disk.stdout) <= 16 * MIB
            assert b"No space left" in disk.stderr
            forks = await box.exec("for i in $(seq 60); do sleep 300 & done; wait", timeout_s=20)
            assert b"fork" in forks.stderr.lower()
            assert forks.timed_out or 18 <= await box.kill() <= 23  # some shells give up at once, others try again
            assert (await box.usage()).processes == 0
            hog = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(30 << 20)\ntime.sleep(30)"
            memory = await box.exec([program, "-c", hog])
            assert memory.stopped is Stopped.MEMORY
            assert (await box.exec(["true"])).ok
            cpu = await box.exec("while :; do :; done", timeout_s=30)
            assert cpu.stopped is Stopped.CPU
            after = await box.exec(["true"])
            assert (after.exit_code, after.stopped) == (None, Stopped.CPU)
        async with provider.open(SandboxSpec(limits=Limits(wall_s=0.5))) as box:
            wall = await box.exec("sleep 30")
            assert wall.stopped is Stopped.WALL
        names = {line.limit for line in box.enforcement}
        assert set(Limits.__struct_fields__) | {"network", "ids"} <= names
        assert "WEAKENED" not in names

    place.run(body)


def test_the_end_state_is_read_after_all_processes_are_dead(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        if not provider.harvests_after_stop:
            needs.skip(
                "end states of stopped sandboxes", f"{provider.name} reads live ones only; native ones are tried"
            )
        box = await provider.start(SPEC)
        await box.exec("(while :; do date +%s%N > late; done) & sleep 0.2; echo done > state")
        await box.stop()
        first = await box.get("/home/user/late")
        assert await box.get("/home/user/state") == b"done\n"
        await asyncio.sleep(0.1)
        assert await box.get("/home/user/late") == first
        with pytest.raises(InfrastructureError):
            await box.exec(["true"])
        await box.close()
        await box.close()
        with pytest.raises(InputError, match="closed"):
            await box.get("/home/user/state")

    place.run(body)


def test_a_cancelled_command_ends_its_sandbox(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            task = asyncio.create_task(box.exec("sleep 1000"))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(InfrastructureError, match="lost"):
                await box.exec(["true"])

    place.run(body)


def test_an_error_of_the_one_who_listens_is_theirs(place: Place) -> None:
    def listen(stream: int, data: bytes) -> None:
        raise KeyError("theirs")

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SPEC) as box:
            with pytest.raises(KeyError, match="theirs"):
                await box.exec("echo; sleep 1000", on_output=listen)

    place.run(body)


def test_the_chain_finds_by_trying_what_works(place: Place) -> None:
    async def body(_: SandboxProvider) -> None:
        tried = {found.name: found for found in await try_mechanisms()}
        assert list(tried) == list(MECHANISMS)
        assert tried[place.name].works
        assert all(found.works or found.mend for found in tried.values())
        best = await best_provider()
        try:
            assert best.name == next(name for name, found in tried.items() if found.works)
            async with best.open(SPEC) as box:
                assert (await box.exec(["true"])).ok
        finally:
            await best.aclose()

    place.run(body)


def test_a_warm_pool_hands_each_out_once(place: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with WarmPool(provider, SPEC, 2) as pool:
            assert pool.waiting == 2
            for _ in range(4):
                async with pool.open() as box:
                    assert (await box.exec("ls -A /tmp; echo used > /tmp/used")).stdout == b""
        with pytest.raises(InputError):
            WarmPool(provider, SPEC, 0)

    place.run(body)
