"""The filter, run instruction by instruction on made-up calls."""

from __future__ import annotations

import errno
import struct

import pytest
from tests import needs

from flightschool.sandbox.node import seccomp
from flightschool.sandbox.node.syscalls import MACHINE, NUMBERS

pytestmark = pytest.mark.skipif(
    not NUMBERS, reason=needs.reason("a processor that native sandboxes know", "run on x86_64 or aarch64")
)
ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(MACHINE, 0)
READ = {"x86_64": 0, "aarch64": 63}.get(MACHINE, 0)


def run(number: int, *arguments: int, arch: int = ARCH) -> int:
    """What the filter answers: a plain interpreter of classic BPF."""
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *words)
    program = list(struct.iter_unpack("<HBBI", seccomp.program()))
    accumulator = at = 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif code == 0x06:
            return int(constant)
        else:
            holds = {
                0x15: accumulator == constant,
                0x35: accumulator >= constant,
                0x45: bool(accumulator & constant),
            }[code]
            at += if_true if holds else if_false


def refused(answer: int) -> int | None:
    return answer & 0xFFFF if answer & 0x7FFF0000 == 0x00050000 else None


def test_ordinary_calls_pass() -> None:
    denied = {NUMBERS[name] for name in (*seccomp.DENIED, *seccomp.MISSING) if name in NUMBERS}
    asked = {NUMBERS[name] for name in ("clone", "socket", "socketpair", "ioctl")}  # these ask for their arguments
    for number in range(460):
        if number not in denied | asked:
            assert run(number) == ALLOW
    assert run(READ, 1, 2, 3) == ALLOW


@pytest.mark.parametrize("name", [name for name in (*seccomp.DENIED, *seccomp.MISSING) if name in NUMBERS])
def test_named_calls_are_refused(name: str) -> None:
    wanted = errno.ENOSYS if name in seccomp.MISSING else errno.EPERM
    assert refused(run(NUMBERS[name])) == wanted


def test_another_calling_convention_is_killed() -> None:
    assert run(READ, arch=0x40000003) == KILL
    if MACHINE == "x86_64":
        assert refused(run(0x40000000 | READ)) == errno.ENOSYS


@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_threads_and_children_but_no_namespace(flag: int) -> None:
    threads = 0x3D0F00
    assert run(NUMBERS["clone"], threads) == ALLOW
    assert run(NUMBERS["clone"], 17) == ALLOW
    assert refused(run(NUMBERS["clone"], threads | flag)) == errno.EPERM


@pytest.mark.parametrize(
    ("name", "arguments", "passes"),
    [
        ("prlimit64", (0, 7), True),
        ("prlimit64", (1, 7), False),
        ("prlimit64", (0xFFFFFFFF00000001, 7), False),
        ("sched_setaffinity", (1234,), True),
        ("sched_setaffinity", (1,), False),
        ("sched_setscheduler", (1,), False),
        ("setpriority", (0, 0), True),
        ("setpriority", (1, 0), True),
        ("setpriority", (0, 1), False),
        ("setpriority", (2, 0), False),
        ("ioprio_set", (1, 0), True),
        ("ioprio_set", (1, 1), False),
        ("ioprio_set", (3, 0), False),
    ],
)
def test_the_agent_s_share_is_not_taken(name: str, arguments: tuple[int, ...], passes: bool) -> None:
    answer = run(NUMBERS[name], *arguments)
    assert answer == ALLOW if passes else refused(answer) == errno.EPERM


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_three_socket_families_exist(call: str) -> None:
    allowed = [family for family in range(50) if run(NUMBERS[call], family, 1, 0) == ALLOW]
    assert allowed == [1, 2, 10]
    assert refused(run(NUMBERS[call], 40, 1, 0)) == errno.EAFNOSUPPORT


def test_terminals_are_not_typed_into() -> None:
    for request in (0x5412, 0x541C, 0x5423):
        assert refused(run(NUMBERS["ioctl"], 0, request)) == errno.EPERM
        assert refused(run(NUMBERS["ioctl"], 0, 0xFFFFFFFF00000000 | request)) == errno.EPERM
    assert run(NUMBERS["ioctl"], 0, 0x5413) == ALLOW
