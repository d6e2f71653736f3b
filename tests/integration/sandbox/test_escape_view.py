"""Attacks on what can be seen and reached: files, processes, sockets, descriptors, secrets, other sandboxes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import needs
from tests.integration.sandbox.conftest import SECRET

from flightschool.errors import InfrastructureError
from flightschool.sandbox import ReadOnlyMount, SandboxProvider, SandboxSpec
from flightschool.sandbox.live import AgentSandbox

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration

WAYS = """
path = sys.argv[2]
ways = ["", "/host", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/../../..", "/proc/self/cwd/../../../.."]
ways += [f"/proc/{pid}/root" for pid in os.listdir("/proc") if pid.isdigit()]
"""


def test_the_grader_s_files_are_not_read(native: Place, grader: Path) -> None:
    script = f"""{WAYS}
for way in ways:
    try:
        fired(way, open(way + path).read())
    except OSError:
        pass
blocked()
"""
    native.check_probe(script, ["curated_view"], arguments=[str(grader / "answer")])


def test_the_grader_s_files_are_not_written(native: Place, grader: Path) -> None:
    script = f"""{WAYS}
for way in ways:
    try:
        with open(way + path, "w") as file:
            file.write("forged")
        fired(way)
    except OSError:
        pass
blocked()
"""
    native.check_probe(script, ["curated_view"], arguments=[str(grader / "answer")])
    assert (grader / "answer").read_text() == "forged", "by the weakened one, which went first"
    (grader / "answer").write_text(SECRET)
    assert native.verdict(script, arguments=[str(grader / "answer")]).startswith("BLOCKED")
    assert (grader / "answer").read_text() == SECRET


def test_what_is_mounted_for_reading_is_not_written(native: Place, grader: Path) -> None:
    script = """
try:
    open("/inputs/planted", "w").close()
    fired()
except OSError as error:
    blocked(error)
"""
    spec = SandboxSpec(mounts=(ReadOnlyMount(source=str(grader), target="/inputs"),))
    native.check_probe(script, ["read_only"], spec)


def test_devices_of_the_host_are_not_there(native: Place) -> None:
    known = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue"]
    known += ["fd", "stdin", "stdout", "stderr"]
    more = sorted({path.name for path in Path("/dev").iterdir()} - {*known, "console", "core"})
    if not more:
        needs.skip("a device of the host beyond the standard ones", "run on a machine that has one in /dev")
    script = "fired(sys.argv[2]) if os.path.lexists('/dev/' + sys.argv[2]) else blocked()"
    native.check_probe(script, ["minimal_devices"], arguments=[more[0]])


def test_processes_of_the_host_are_not_seen(native: Place) -> None:
    # By its command line: a process of the sandbox may well have the number of one of the host.
    script = """
try:
    seen = open(f"/proc/{sys.argv[2]}/cmdline", "rb").read().hex()
except OSError as error:
    blocked(error)
fired() if seen == sys.argv[3] else blocked("another process")
"""
    own = Path("/proc/self/cmdline").read_bytes().hex()
    native.check_probe(script, ["pid"], arguments=[str(os.getpid()), own])


def test_the_launcher_cannot_be_signalled(place_of_user: Place) -> None:
    script = """
try:
    os.kill(LAUNCHER, 0)
    fired()
except OSError as error:
    blocked(error)
"""
    place_of_user.check_probe(script, ["pid"])


def test_the_agent_cannot_be_killed_or_stopped(any_native: Place) -> None:
    """Its pid namespace shields it: an init takes no signal from inside, not even SIGKILL."""

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            told = await box.exec("for s in KILL STOP INT TERM CHLD HUP SEGV; do kill -$s 1; done; echo tried")
            assert told.stdout == b"tried\n"
            assert (await box.exec(["true"])).ok

    any_native.run(body)

    async def weak(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            with contextlib.suppress(Exception):
                await box.exec("kill -KILL $PPID; sleep 5", timeout_s=10)
            assert isinstance(box, AgentSandbox)
            assert box.lost

    any_native.run(weak, without=["pid"])


def test_the_agent_cannot_be_starved_of_its_limits(native: Place) -> None:
    """The kernel's own SIGKILL reaches an init: a limit of no processor time on it would lose the sandbox."""
    script = "import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (0, 0))"

    async def attack(provider: SandboxProvider) -> str:
        program, mounts = native.python()
        async with provider.open(SandboxSpec(mounts=mounts)) as box:
            assert isinstance(box, AgentSandbox)
            with contextlib.suppress(InfrastructureError):
                await box.exec([program, "-c", script])
                for _ in range(300):
                    await box.exec(["true"])
            return box.lost

    async def weak(provider: SandboxProvider) -> None:
        assert await attack(provider)

    async def full(provider: SandboxProvider) -> None:
        assert await attack(provider) == ""

    native.run(weak, without=["seccomp"])
    native.run(full)


AGENT_MEMORY = {
    "environment": "open('/proc/1/environ', 'rb').read()",
    "memory": "open('/proc/1/mem', 'rb').close()",
    "descriptors": "os.listdir('/proc/1/fd')",
    "program, which is the host's interpreter": "os.stat('/proc/1/exe')",
    "memory map": "open('/proc/1/maps').read()",
}


@pytest.mark.parametrize("what", AGENT_MEMORY)
def test_the_agent_does_not_show_its(native: Place, what: str) -> None:
    script = f"""
try:
    {AGENT_MEMORY[what]}
    fired()
except OSError as error:
    blocked(error)
"""
    native.check_probe(script, ["dumpable"])


def test_a_secret_in_the_caller_s_environment_stays_there(native: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    script = f"""
for pid in ["self", *os.listdir("/proc")]:
    try:
        if b"{SECRET}" in open(f"/proc/{{pid}}/environ", "rb").read():
            fired(pid)
    except OSError:
        pass
blocked()
"""
    native.check_probe(script, ["environment", "dumpable"], fresh=True)
    empty = native.verdict(script, without=["dumpable"], fresh=True)
    assert empty.startswith("BLOCKED"), "an empty one has nothing to show"


def test_the_install_folder_is_not_told(native: Place) -> None:
    script = """
text = open("/proc/1/cmdline").read().strip("\\0")
blocked() if text == "sandbox-init" else fired(text)
"""
    for place in (native, native.twin):
        assert place.verdict(script).startswith("BLOCKED")


def test_descriptors_are_not_inherited(native: Place, grader: Path) -> None:
    script = """
for fd in os.listdir("/proc/self/fd"):
    try:
        if sys.argv[2] in os.readlink(f"/proc/self/fd/{fd}"):
            fired(os.pread(int(fd), 100, 0))
    except OSError:
        pass
blocked()
"""
    with (grader / "answer").open() as file:
        os.set_inheritable(file.fileno(), True)
        native.check_probe(script, ["close_descriptors"], arguments=[grader.name], fresh=True)


def test_only_standard_streams_are_open(any_native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            assert (await box.exec("ls /proc/$$/fd; true")).stdout.split() == [b"0", b"1", b"2"]

    any_native.run(body)


def test_servers_of_the_host_are_not_reached(native: Place) -> None:
    script = """
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=3).close()
    fired()
except OSError as error:
    blocked(error)
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        native.check_probe(script, ["network"], arguments=[str(server.getsockname()[1])])


def test_abstract_sockets_of_the_host_are_not_reached(native: Place) -> None:
    script = """
peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect("\\0" + sys.argv[2])
    fired()
except OSError as error:
    blocked(error)
"""
    name = f"fs-probe-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen(9)
        native.check_probe(script, ["network"], arguments=[name])


def test_shared_memory_of_the_host_is_not_reached(native: Place) -> None:
    script = """
value = libc.shmget(int(sys.argv[2]), 0, 0)
fired(value) if value >= 0 else blocked()
"""
    libc = ctypes.CDLL(None, use_errno=True)
    key, create = 0x5F000000 | os.getpid() & 0xFFFFFF, 0o1000
    segment = libc.shmget(key, 4096, create | 0o666)
    if segment < 0:
        needs.skip("System V shared memory of the host", "run on a kernel with CONFIG_SYSVIPC")
    try:
        native.check_probe(script, ["ipc"], arguments=[str(key)])
    finally:
        libc.shmctl(segment, 0, None)


def test_network_devices_of_the_host_are_not_seen(native: Place) -> None:
    if all(name == "lo" for _, name in socket.if_nameindex()):
        needs.skip("a network device of the host beside lo", "run on a machine with a network")
    script = """
names = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
more = [name for name in names if name != "lo"]
fired(more) if more else blocked(names)
"""
    native.check_probe(script, ["network"])


def test_the_agent_s_program_cannot_be_held(native: Place) -> None:
    """Who holds it can write to it once it no longer runs, if it belongs to the user: a way out of containers."""
    script = """
try:
    fired(os.fstat(os.open("/proc/1/exe", os.O_PATH)).st_size)
except OSError as error:
    blocked(error)
"""
    native.check_probe(script, ["dumpable"])


def test_a_program_of_the_host_is_not_overwritten_through_proc(native: Place, grader: Path) -> None:
    shutil.copy(shutil.which("sleep") or "/bin/sleep", grader / "program")
    (grader / "program").chmod(0o777)
    before = (grader / "program").read_bytes()
    script = """
pid = os.fork()
if pid == 0:
    os.execv("/inputs/program", ["program", "20"])
while True:
    try:
        held = os.open(f"/proc/{pid}/exe", os.O_PATH)
    except OSError as error:
        blocked(error)
    if os.readlink(f"/proc/self/fd/{held}").endswith("program"):
        break
    os.close(held)
    time.sleep(0.01)
os.kill(pid, 9)
os.waitpid(pid, 0)
try:
    with open(f"/proc/self/fd/{held}", "r+b") as file:
        file.write(b"forged!!")
    fired()
except OSError as error:
    blocked(error)
"""
    spec = SandboxSpec(mounts=(ReadOnlyMount(source=str(grader), target="/inputs"),))
    assert native.verdict(script, without=["read_only"], spec=spec).startswith("FIRED")
    assert (grader / "program").read_bytes().startswith(b"forged!!")
    (grader / "program").write_bytes(before)
    for place in (native, native.twin):
        assert place.verdict(script, spec=spec).startswith("BLOCKED")
        assert (grader / "program").read_bytes() == before


PROC = {
    "the host's boot": "/proc/sys/kernel/random/boot_id",
    "the kernel's command line": "/proc/cmdline",
    "the disks": "/proc/partitions",
    "the kernel's modules": "/proc/modules",
    "disk statistics": "/proc/diskstats",
}


@pytest.mark.parametrize("what", PROC)
def test_proc_does_not_tell(native: Place, what: str) -> None:
    path = PROC[what]
    try:
        text = Path(path).read_text().strip()
    except OSError:
        text = ""
    if not text:
        needs.skip(f"{path}", "run on a kernel where it holds something")
    first = text.splitlines()[0].split(":")[0].strip()
    script = """
try:
    text = open(sys.argv[2]).read()
except OSError as error:
    blocked(error)
fired() if sys.argv[3] in text else blocked(text[:80])
"""
    native.check_probe(script, ["proc_masks"], arguments=[path, first])


def test_keys_of_the_kernel_are_not_listed(native: Place) -> None:
    script = """
name = f"fs-probe-{sys.argv[2]}".encode()
call("add_key", b"user", name, b"x", 1, -2)
fired() if name in open("/proc/keys", "rb").read() else blocked()
"""
    # A name of its own each time: the kernel clears keys of processes that ended when it comes to it.
    native.check_probe(script, ["proc_masks", "seccomp"], arguments=[secrets.token_hex(8)])
    for one in ("proc_masks", "seccomp"):
        assert native.verdict(script, without=[one], arguments=[secrets.token_hex(8)]).startswith("BLOCKED"), one


def test_processes_of_another_sandbox_are_not_killed(native: Place) -> None:
    """Without a pid namespace they are, where both have the same id."""

    async def killed(provider: SandboxProvider, looks: int) -> bool:
        async with provider.open(SandboxSpec()) as one, provider.open(SandboxSpec()) as other:
            told = await one.exec("sleep 945 >/dev/null 2>&1 & echo $!")
            pid = int(told.stdout)
            await other.exec(f"kill -9 {pid}")
            lives = f"grep -q '^State:.[SRD]' /proc/{pid}/status"
            return (await one.exec(f"for n in $(seq {looks}); do {lives} || exit 0; sleep 0.02; done; exit 1")).ok

    async def weak(provider: SandboxProvider) -> None:
        assert await killed(provider, 2000)

    async def full(provider: SandboxProvider) -> None:
        assert not await killed(provider, 10)

    native.run(weak, without=["pid"] if native.name == "native-single" else ["pid", "unprivileged_ids"])
    for place in (native, native.twin):
        place.run(full)


def test_another_sandbox_is_not_reached(any_native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as one, provider.open(SandboxSpec()) as other:
            await one.exec(f"echo {SECRET} > /tmp/mine; sleep 100 & echo; nc -h >/dev/null 2>&1; true")
            looked = "cat /tmp/mine /proc/*/roo?/tmp/mine /proc/*/cwd/../../tmp/mine; ps ax | grep -c '[s]leep 100'"
            assert (await one.exec(looked)).stdout.startswith(SECRET.encode())
            told = await other.exec(looked)
            assert SECRET.encode() not in told.stdout
            assert told.stdout.strip() == b"0"
            await other.exec("kill -9 -1")
            assert (await one.usage()).processes == 1

    any_native.run(body)
