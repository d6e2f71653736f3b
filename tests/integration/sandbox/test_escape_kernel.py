"""Attacks on kernel surface. Each fires in a sandbox without the named defence, and is refused in a whole one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import needs
from tests.integration.sandbox.conftest import PRELUDE

from flightschool.sandbox import SandboxSpec
from flightschool.sandbox.node.syscalls import MACHINE

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration

NEW_USER, NEW_MOUNT = 0x10000000, 0x00020000

BY_FILTER = {
    "new user namespace": f"judge(call('unshare', {NEW_USER}))",
    "mount through a new user namespace": f"""
if call("unshare", {NEW_USER | NEW_MOUNT}) < 0:
    blocked("unshare")
judge(call("mount", b"t", b"/tmp", b"tmpfs", 0, 0))
""",
    "clone with a new user namespace": f"""
pid = call("clone", {NEW_USER} | 17, 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
judge(pid)
""",
    "clone3, whose flags a filter cannot see": "value = call('clone3', 0, 0); judge(0 if value == -22 else value)",
    "trace a child": """
if os.fork() == 0:
    os._exit(0 if call("ptrace", 0, 0, 0, 0) == 0 else 9)
fired() if os.waitstatus_to_exitcode(os.wait()[1]) == 0 else blocked()
""",
    "write another process's memory": """
source, target = ctypes.create_string_buffer(b"new!"), ctypes.create_string_buffer(b"old!")
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
one, two = Vector(ctypes.addressof(source), 4), Vector(ctypes.addressof(target), 4)
value = call("process_vm_writev", os.getpid(), ctypes.byref(one), 1, ctypes.byref(two), 1, 0)
fired(target.value) if target.value == b"new!" else judge(value if value < 0 else -1)
""",
    "keep a key in the kernel": "judge(call('add_key', b'user', b'probe', b'x', 1, -2))",
    "io_uring": "params = ctypes.create_string_buffer(120); judge(call('io_uring_setup', 4, params))",
    "userfaultfd": "judge(call('userfaultfd', 1))",
    "memory that no process owns": "judge(call('memfd_create', b'x', 0))",
    "file handles": """
handle = ctypes.create_string_buffer(b"\\x80\\0\\0\\0" + bytes(140)); mount = ctypes.c_int()
judge(call("name_to_handle_at", -100, b"/tmp", handle, ctypes.byref(mount), 0))
""",
    "take a descriptor of another process": """
pid = os.fork()
if pid == 0:
    time.sleep(5)
    os._exit(0)
value = call("pidfd_getfd", os.pidfd_open(pid), 0, 0)
os.kill(pid, 9)
judge(value)
""",
    "compare kernel objects": "judge(call('kcmp', os.getpid(), os.getpid(), 1, 0, 0))",
    "netlink": "judge(call('socket', 16, 3, 0))",
    "kernel crypto sockets": "judge(call('socket', 38, 5, 0))",
    "vsock, which no network namespace shuts": "judge(call('socket', 40, 1, 0))",
    "type into a terminal": """
import fcntl
master, slave = os.openpty()
fcntl.ioctl(slave, 0x540E, 0)
try:
    fcntl.ioctl(slave, 0x5412, b"x")
    fired()
except OSError as error:
    blocked(error)
""",
    "take the agent's share of the processor": """
parameter = bytes(4)
judge(call("sched_setscheduler", 1, 5, parameter))
""",
    "set the priority of everything": "judge(call('setpriority', 2, 0, 19))",
    "performance counters": """
words = (1).to_bytes(4, "little") + (112).to_bytes(4, "little") + bytes(32) + (0x61).to_bytes(8, "little") + bytes(64)
judge(call("perf_event_open", words, 0, -1, -1, 0))
""",
    "load a filter program": "value = call('bpf', 5, bytes(128), 128); judge(0 if value == -22 else value)",
}


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _has_family(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_SEQPACKET).close()
    except OSError:
        return False
    return True


def not_here(attack: str) -> str:  # noqa: PLR0911 - a table
    """Why this machine's kernel refuses an attack by itself, so that nothing can be shown."""
    match attack:
        case "type into a terminal" if _number("/proc/sys/dev/tty/legacy_tiocsti") == 0:
            return "the kernel types into no terminal"
        case "performance counters" if (_number("/proc/sys/kernel/perf_event_paranoid") or 0) > 2:
            return "the kernel counts for root only"
        case "load a filter program" if _number("/proc/sys/kernel/unprivileged_bpf_disabled") != 0:
            return "the kernel loads programs of root only"
        case "io_uring" if (_number("/proc/sys/kernel/io_uring_disabled") or 0) > 0:
            return "io_uring is off"
        case "vsock, which no network namespace shuts" if not _has_family(40):
            return "no vsock"
        case "kernel crypto sockets" if not _has_family(38):
            return "no AF_ALG"
    return ""


@pytest.mark.parametrize("attack", BY_FILTER)
def test_the_filter_stops(native: Place, attack: str) -> None:
    if why := not_here(attack):
        needs.skip("a kernel that allows the attack without our filter", f"on this one {why}")
    native.check_probe(BY_FILTER[attack], ["seccomp"])


def test_the_filter_stops_numbers_of_another_calling_convention(native: Place) -> None:
    if MACHINE != "x86_64":
        needs.skip("x86_64", "run on it; other processors have no second convention that this script can speak")
    script = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid of the 32-bit table
entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
if os.fork() == 0:
    os._exit(0 if entry() == os.getpid() else 9)
code = os.waitstatus_to_exitcode(os.wait()[1])
fired() if code == 0 else blocked(code)
"""
    weak = native.verdict(script, without=["seccomp"])
    if weak.startswith("BLOCKED"):
        needs.skip("a kernel with 32-bit calls", "run on one with CONFIG_IA32_EMULATION")
    for place in (native, native.twin):
        assert place.verdict(script).startswith("BLOCKED -31")


ROOT_INSIDE = SandboxSpec(uid=0, gid=0)
BY_CAPABILITIES = {
    "hold capabilities": """
lines = [line.split() for line in open("/proc/self/status") if line.startswith("Cap")]
held = [name for name, mask in lines if int(mask, 16)]
fired(held) if held else blocked()
""",
    "rename the host": "judge(call('sethostname', b'own', 3))",
    "chroot": "judge(call('chroot', b'/tmp'))",
    "take a mask off /proc": "judge(call('umount2', b'/proc/keys', 2))",
    "mount": "judge(call('mount', b't', b'/tmp', b'tmpfs', 0, 0))",
    "raw packets": "judge(call('socket', 2, 3, 1))",
    "open by a file handle": """
handle = ctypes.create_string_buffer(b"\\x80\\0\\0\\0" + bytes(140)); mount = ctypes.c_int()
value = call("name_to_handle_at", -100, b"/tmp", handle, ctypes.byref(mount), 0)
if value < 0:
    blocked(value)
judge(call("open_by_handle_at", os.open("/", os.O_RDONLY), handle, 0))
""",
}


@pytest.mark.parametrize("attack", BY_CAPABILITIES)
def test_dropped_capabilities_stop(native: Place, attack: str) -> None:
    if attack == "open by a file handle" and native.verdict(
        BY_CAPABILITIES[attack], without=["capabilities", "seccomp"], spec=ROOT_INSIDE
    ).startswith("BLOCKED"):
        needs.skip("a kernel that opens handles for a namespace's root", "run on Linux 6.11 or newer")
    native.check_probe(BY_CAPABILITIES[attack], ["capabilities", "seccomp"], ROOT_INSIDE)
    if attack != "hold capabilities":
        alone = native.verdict(BY_CAPABILITIES[attack], without=["seccomp"], spec=ROOT_INSIDE)
        assert alone.startswith("BLOCKED"), "capabilities alone must stop it too"


def test_no_new_privileges_is_set(native: Place) -> None:
    script = """
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
fired() if lines["NoNewPrivs"].strip() == "0" else blocked()
"""
    native.check_probe(script, ["no_new_privs", "seccomp"])


def test_no_device_is_made(native: Place) -> None:
    """No user namespace makes any, whatever its capabilities: the attack fires outside only, as root."""
    script = """
import stat
place = sys.argv[2] + "/probe"
try:
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    data = open(place, "rb").read(1)
    os.unlink(place)
    fired(data)
except OSError as error:
    blocked(error)
"""
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            outside = subprocess.run(
                [sys.executable, "-c", PRELUDE + script, "0", folder], capture_output=True, text=True, check=True
            )
        if not outside.stdout.startswith("FIRED"):
            needs.skip("a root that makes devices", "run outside of a container, or with CAP_MKNOD")
    for without in ([], ["capabilities", "seccomp"]):
        for place in (native, native.twin):
            told = place.verdict(script, without=without, spec=ROOT_INSIDE, arguments=["/tmp"])
            assert told.startswith("BLOCKED"), without


AS_ROOT_OF_THE_HOST = {
    "reboot the machine by a key": """
try:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))  # opened only: a letter in it would act
    fired()
except OSError as error:
    blocked(error)
""",
    "make a control group": """
import glob
for folder in [*glob.glob("/host/sys/fs/cgroup/*/"), "/host/sys/fs/cgroup", "/sys/fs/cgroup"]:
    try:
        os.mkdir(folder + "/fs-probe")
        os.rmdir(folder + "/fs-probe")
        fired(folder)
    except OSError as error:
        last = error
blocked(last)
""",
    "signal the launcher": """
try:
    os.kill(LAUNCHER, 0)
    fired()
except OSError as error:
    blocked(error)
""",
}


@pytest.mark.parametrize("attack", AS_ROOT_OF_THE_HOST)
def test_what_the_host_s_root_may_do_a_sandbox_s_root_may_not(place_as_root: Place, attack: str) -> None:
    weak = ["unprivileged_ids", "proc_masks", "capabilities", "seccomp", "curated_view", "pid"]
    told = place_as_root.verdict(AS_ROOT_OF_THE_HOST[attack], without=weak, spec=ROOT_INSIDE)
    if "No such file" in told or (attack == "make a control group" and told.startswith("BLOCKED")):
        needs.skip("what the attack is on", f"run on a machine where it is there; here: {told}")
    assert told.startswith("FIRED"), told
    for place in (place_as_root, place_as_root.twin):
        assert place.verdict(AS_ROOT_OF_THE_HOST[attack], spec=ROOT_INSIDE).startswith("BLOCKED")
    if attack != "signal the launcher":
        alone = [one for one in weak if one != "unprivileged_ids"]
        told = place_as_root.verdict(AS_ROOT_OF_THE_HOST[attack], without=alone, spec=ROOT_INSIDE)
        assert told.startswith("BLOCKED"), "an id of nobody's alone must stop it too"


def test_root_of_the_host_is_nobody_inside(place_as_root: Place) -> None:
    """Kernel settings ask for the id only: whoever maps the host's root could write them. Same value put back."""
    script = """
path = "/proc/sys/kernel/core_pattern"
try:
    with open(path, "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)
    fired()
except OSError as error:
    blocked(error)
"""
    weak = ["unprivileged_ids", "proc_masks", "capabilities", "seccomp"]
    place_as_root.check_probe(script, weak, ROOT_INSIDE)
    for one in (["unprivileged_ids"], ["proc_masks"]):
        assert place_as_root.verdict(script, without=one, spec=ROOT_INSIDE).startswith("BLOCKED"), one
