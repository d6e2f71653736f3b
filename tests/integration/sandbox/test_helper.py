"""The native helper: that what it sets up and answers is what the launcher in Python does, and how it is come by."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import signal
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs
from tests.integration.sandbox.conftest import open_way_to

from flightschool.errors import InfrastructureError, InputError
from flightschool.sandbox import ImageTree, Limits, NativeProvider, ReadOnlyMount, SandboxProvider, SandboxSpec
from flightschool.sandbox import helper as helping
from flightschool.sandbox.helper import SWITCH, compiler, find_helper
from flightschool.sandbox.launching import plan_of
from flightschool.sandbox.node import seccomp
from flightschool.sandbox.recipes import knows

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

NO_COMPILER = needs.reason("a C compiler", "install gcc or clang with this machine's package manager")
pytestmark = [pytest.mark.integration, pytest.mark.skipif(compiler() is None, reason=NO_COMPILER), pytest.mark.long]
LOOK = Path(__file__).with_name("look.py").read_text()


def carried_out(place: Place, body: Any) -> Any:
    """What ``body`` returns, as JSON, also from the child that gave up root."""
    with tempfile.TemporaryFile() as out:

        async def whole(provider: SandboxProvider) -> None:
            os.write(out.fileno(), json.dumps(await body(provider)).encode())

        place.run(whole)
        out.seek(0)
        return json.loads(out.read())


def seen_in(place: Place, spec: SandboxSpec) -> Any:
    async def body(provider: SandboxProvider) -> Any:
        program, mounts = place.python()
        async with provider.open(msgspec.structs.replace(spec, mounts=(*spec.mounts, *mounts))) as box:
            maker = next(line for line in box.enforcement if line.limit == "launcher")
            assert maker.mechanism.endswith("C" if place.helped else "Python")
            result = await box.exec([program, "-c", LOOK], output_bytes=8 << 20, env={"ONE": "1"})
            assert result.ok, result
            return json.loads(result.stdout)

    return carried_out(place, body)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in one.items():
        if isinstance(value, dict):
            differ = {k: (v, other[key].get(k)) for k, v in value.items() if other[key].get(k) != v}
            assert not differ, (key, differ)
        assert other[key] == value, key
    assert one.keys() == other.keys()


def test_both_set_up_the_same(both: tuple[Place, Place], tmp_path: Path) -> None:
    open_way_to(tmp_path)
    (tmp_path / "file").write_text("x")
    mounts = (
        ReadOnlyMount(source=str(tmp_path), target="/inputs/deep/er"),
        ReadOnlyMount(source=str(tmp_path / "file"), target="/home/user/file"),
    )
    specs = [
        SandboxSpec(),
        SandboxSpec(uid=0, gid=0, workdir="/a/b", mounts=mounts, hostname="other", env={"X": "y"}),
        SandboxSpec(limits=Limits(pids=40, inodes=900, disk_bytes=9 << 20, open_files=99, memory_bytes=99 << 20)),
    ]
    python, helped = both
    for spec in specs:
        one, other = seen_in(python, spec), seen_in(helped, spec)
        assert len(one["mounts"]) > 25
        assert len(one["tree"]) > 40
        assert one["own status"]["Seccomp_filters"] == ["1"]
        assert_same(one, other)


def test_both_set_up_the_same_on_an_image_tree(both: tuple[Place, Place], tmp_path: Path) -> None:
    python, helped = both
    tree = tmp_path / "image"
    for name in ("etc", "opt/x", "tmp", "home/user", "dev"):
        (tree / name).mkdir(parents=True)
    (tree / "tmp").chmod(0o755)
    (tree / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tree / "dev" / "fd").symlink_to("elsewhere")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (tree / name).symlink_to(Path("/", name).readlink())
    open_way_to(tree)
    if python.dropped:
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, python.user, python.user)
    host = tuple(
        ReadOnlyMount(source=name, target=name)
        for name in ("/usr", "/lib", "/lib64", "/bin")
        if Path(name).is_dir() and not Path(name).is_symlink()
    )
    for uid in (1000, 0):
        spec = SandboxSpec(root=ImageTree(path=str(tree)), mounts=host, uid=uid, gid=uid, workdir="/opt/x")
        one, other = seen_in(python, spec), seen_in(helped, spec)
        assert one["tree"]["/dev/fd"][-1] == "elsewhere"
        assert_same(one, other)


def test_both_set_up_the_same_on_a_layer_over_the_host(both: tuple[Place, Place], tmp_path: Path) -> None:
    python, helped = both
    tree = tmp_path / "layer"
    for name in ("etc/ssl", "opt/x", "usr/lib/own", "usr/local/share", "elsewhere"):
        (tree / name).mkdir(parents=True)
    (tree / "etc/shells").write_text("/bin/only\n")
    (tree / "usr/local/bin").symlink_to("/opt/x")
    (tree / "var").symlink_to("../elsewhere")
    open_way_to(tree)
    if python.dropped:
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, python.user, python.user)
    mounts = (ReadOnlyMount(source=str(tmp_path), target="/var/here"),)
    for uid in (1000, 0):
        for changes in (True, False):
            root = ImageTree(path=str(tree), over_host=True)
            spec = SandboxSpec(
                root=root, uid=uid, gid=uid, workdir="/opt/x", changes=changes, file_powers=True, mounts=mounts
            )
            one, other = seen_in(python, spec), seen_in(helped, spec)
            assert one["own status"]["CapEff"] == (["000000000000001b"] if uid == 0 else ["0000000000000000"])
            assert one["tree"]["//var"][-1] == "../elsewhere"
            assert_same(one, other)


REQUESTS: list[dict[str, Any]] = [
    {"command": ["printf", "%s|", "a b", "", "é", "\udcff\udc80", "\U0001f600", '"\\\n\t\x01']},
    {"command": ["sh", "-c", "cat; echo $0 $#", "name", "x"], "stdin": b"\x00\xff" * 70000},
    {"command": "exit 7"},
    {"command": "kill -SEGV $$"},
    {"command": ["true"], "cwd": "/no/such"},
    {"command": ["true"], "cwd": "/etc/passwd"},
    {"command": ["true"], "env": {"PATH": ""}},
    {"command": ["true"], "env": {"PATH": "/no/such:/usr/bin:/bin"}},
    {"command": ["./bare"], "cwd": "/tmp"},
    {"command": ["bare"], "env": {"PATH": "/tmp:/usr/bin"}},
    {"command": ["folder"], "env": {"PATH": "/tmp"}},
    {"command": ["noexec"], "env": {"PATH": "/tmp:/no/such"}},
    {"command": [""]},
    {"command": ["sh", "-c", "echo x >&2"], "env": {"A=B": "c"}},
    {"command": ["env", "-0"], "env": {"LONG": "x" * 100_000, "UNI": "ü"}},
    {"command": ["sh", "-c", "sleep 0.2; ulimit -t; ulimit -n; umask; (yes; echo $? >&2) | head -1"]},
    {"command": "head -c 5000 /dev/zero; head -c 5000 /dev/zero >&2", "output_bytes": 1000},
    {"command": "head -c 1000 /dev/zero", "output_bytes": 1000},
    {"command": "echo early; sleep 30", "timeout_s": 0.3},
    {"command": "trap '' TERM; sleep 30 & setsid sleep 31 & wait", "timeout_s": 0.3, "sweep_on_timeout": True},
    {"command": ["x" * 200_000]},
    {"command": ["head", "-c1", "/no/such"]},
]


def test_both_answer_the_same(both: tuple[Place, Place]) -> None:
    async def body(provider: SandboxProvider) -> Any:
        told: list[list[Any]] = []
        async with provider.open(SandboxSpec()) as box:
            await box.put("/tmp/bare", b"echo from a shell\n", mode=0o755)
            await box.put("/tmp/noexec", b"#!/bin/sh\n", mode=0o644)
            await box.exec("mkdir -p /tmp/folder")
            for request in REQUESTS:
                result = await box.exec(**request)
                fields = msgspec.to_builtins(result)
                words = {"cpu_s": 0, "wall_s": 0, "failed_to_start": bool(result.failed_to_start)}
                told.append([repr(request)[:60], {**fields, **words}])
            for path in ("/tmp/new/er/file", "/etc/passwd/x", "/usr/planted", "/tmp/folder"):
                try:
                    await box.put(path, b"x")
                    told.append([path, (await box.exec(["stat", "-c", "%a %u %s %F", path])).stdout.decode()])
                except (InputError, InfrastructureError) as error:
                    told.append([path, type(error).__name__])
            told.append(["daemons", (await box.exec("sleep 50 & sleep 51 & true")).exit_code, await box.kill()])
            used = await box.usage()
            told.append(["usage", used.processes, used.memory_bytes])
        return told

    one, other = (carried_out(place, body) for place in both)
    for mine, theirs in zip(one, other, strict=True):
        assert mine == theirs
    assert sum(isinstance(row[1], dict) and row[1]["failed_to_start"] for row in one) >= 7


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_words_arrive_as_they_were_sent(words: list[str]) -> None:
    async def body() -> None:
        provider = NativeProvider(helper=True)
        try:
            async with provider.open(SandboxSpec()) as box:
                told = await box.exec(["printf", "%s\\0", *words])
                assert told.stdout.decode() == "".join(f"{word}\0" for word in words or [""])
        finally:
            await provider.aclose()

    asyncio.run(body())


def test_the_filter_in_the_kernel_is_the_program(place_as_root: Place) -> None:
    """Read back from the agent by a tracer, instruction by instruction."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    seize, interrupt, get_filter, detach = 0x4206, 0x4207, 0x420C, 17

    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        async with provider.open(SandboxSpec()) as box:
            await box.exec(["true"])  # a box is ready before its agent is hardened; an answer shows that it is
            (agent,) = psutil.Process(provider.launcher_pid).children()
            if libc.ptrace(seize, agent.pid, None, None) < 0:
                needs.skip("leave to trace processes", "set /proc/sys/kernel/yama/ptrace_scope below 3, or run as root")
            libc.ptrace(interrupt, agent.pid, None, None)
            _, status = os.waitpid(agent.pid, 0x40000000)
            # A signal that came first stopped the agent in place of the interruption; it must not lose it.
            came = 0 if status >> 16 else os.WSTOPSIG(status)
            try:
                count = libc.ptrace(get_filter, agent.pid, 0, None)
                refusal = ctypes.get_errno()
                if count < 0 and refusal in (errno.EIO, errno.EACCES):
                    needs.skip("a kernel that shows filters", "run as root on one with CONFIG_CHECKPOINT_RESTORE")
                assert count > 0, os.strerror(refusal)
                code = ctypes.create_string_buffer(8 * count)
                assert libc.ptrace(get_filter, agent.pid, 0, code) == count
            finally:  # what stays traced dies for its tracer alone, and its launcher waits for it in vain
                libc.ptrace(detach, agent.pid, None, came)
            assert code.raw == seccomp.program()

    place_as_root.run(body)


def test_the_helper_leaves_to_python_what_it_does_not_know() -> None:
    plan = plan_of(SandboxSpec(), "range")
    assert knows(plan)
    assert not knows(plan_of(SandboxSpec(), "range", ["seccomp"]))
    assert not knows({**plan, "a_field_to_come": True})
    assert knows({**plan, "a_field_to_come": False})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(helping, "_FLAGS", ("-std=gnu11", "-O0"))  # the program is not run for long
    monkeypatch.delenv(SWITCH, raising=False)
    return tmp_path / "cache"


def test_it_is_built_once_and_whole(cache: Path) -> None:
    first = find_helper()
    assert first.program.startswith(str(cache))
    before = Path(first.program).stat()
    helping._found.cache_clear()
    assert find_helper() == first
    assert Path(first.program).stat().st_mtime_ns == before.st_mtime_ns
    assert stat.S_IMODE(before.st_mode) == 0o700
    assert [path.name for path in Path(first.program).parent.iterdir()] == [Path(first.program).name]


def test_a_program_that_others_may_write_is_not_run(cache: Path) -> None:
    first = Path(find_helper().program)
    first.write_bytes(b"#!/bin/sh\nexit 1\n")
    first.chmod(0o777)
    helping._found.cache_clear()
    again = Path(find_helper().program)
    assert again == first
    assert again.read_bytes()[:4] == b"\x7fELF"
    first.parent.chmod(0o777)
    helping._found.cache_clear()
    assert find_helper().program == ""


def test_it_can_be_switched_off_and_python_does_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert find_helper().found == f"switched off by {SWITCH}"
    with pytest.raises(InputError, match="switched off"):
        NativeProvider(helper=True)
    monkeypatch.delenv(SWITCH)
    monkeypatch.setenv("PATH", str(cache))
    assert "no C compiler" in find_helper().found
    assert not cache.exists()


def test_switched_off_the_launcher_is_python(both: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")

    async def body(_: SandboxProvider) -> None:
        provider = NativeProvider()
        try:
            async with provider.open(SandboxSpec()) as box:
                assert (await box.exec(["true"])).ok
                line = next(line for line in box.enforcement if line.limit == "launcher")
                assert (line.mechanism, line.bound) == ("launcher and agent in Python", f"switched off by {SWITCH}")
            assert SWITCH in (await provider.try_out()).found
        finally:
            await provider.aclose()

    both[0].run(body)


def test_a_failed_build_is_told_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "cc"
    broken.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = find_helper()
    assert found.program == ""
    assert "no such header" in found.found
    assert list((cache / "native").iterdir()) == []


def test_a_launcher_killed_while_it_makes_sandboxes_leaves_none(any_native: Place) -> None:
    """At any moment of a set-up: also before the child has asked to die with it."""

    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        for patience in range(12):
            async with provider.open(SandboxSpec()):
                pass
            pid = provider.launcher_pid
            assert pid is not None
            starting = [asyncio.create_task(provider.start(SandboxSpec())) for _ in range(4)]
            await asyncio.sleep(patience / 1000)
            family = psutil.Process(pid).children(recursive=True)
            os.kill(pid, signal.SIGKILL)
            for done in await asyncio.gather(*starting, return_exceptions=True):
                if isinstance(done, BaseException):
                    assert isinstance(done, InfrastructureError)
                else:
                    await done.close()
            for _ in range(2000):
                alive = [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
                if not alive:
                    break
                await asyncio.sleep(0.02)
            assert alive == [], patience

    any_native.run(body)
