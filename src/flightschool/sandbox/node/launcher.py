"""The launcher: one process per node that makes sandboxes, watches over their life, and ends with its caller.

Single-threaded, so that ``clone`` is safe. It holds no data of the trainer. Three ways to end: the caller hangs up, the
caller dies (a pidfd of it becomes readable), or it is killed: then each sandbox dies by its parent-death signal.
"""

from __future__ import annotations

import array  # noqa: F401 - send_fds imports it late, when the sandbox has no library any more
import contextlib
import ctypes
import errno
import gc
import json
import os
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Any, Final

from flightschool.sandbox.node import agent, confine, roots, seccomp, syscalls
from flightschool.sandbox.node.frames import pack
from flightschool.sandbox.node.plan import Plan

__all__ = ["main"]

_MOST_MESSAGE: Final = 1 << 18
_RANGE_BASE: Final = 0x70000000
_RANGE_COUNT: Final = 65536
_RANGES: Final = 4096
_GRACE_S: Final = 30.0
"""A sandbox that outlives its wall clock by this much is killed from here: no caller, however it failed, leaks one."""


class _Box:
    def __init__(self, pid: int, slot: int, dies_at: float, gate: socket.socket, group: str) -> None:
        self.pid = pid
        self.group = group
        """Path of its control group; empty: none."""
        self.pidfd = os.pidfd_open(pid)
        self.slot = slot
        self.dies_at = dies_at
        self.gate = gate
        """Open for as long as this process lives, which is how the child knows that it does."""


class _Launcher:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._boxes: dict[int, _Box] = {}
        self._left: list[str] = []
        """Control groups of dead sandboxes, which are the caller's to remove: until it has done so."""
        self._slots = list(range(_RANGES - 1, -1, -1))
        self._selector.register(control, selectors.EVENT_READ)
        self._caller = os.pidfd_open(os.getppid())
        self._selector.register(self._caller, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd == self._caller or (key.fd == self._control.fileno() and not self._on_message()):
                    self._end()
                    return
                if key.data is not None:
                    self._on_death(key.data)
            self._kill_overdue()

    def _patience_s(self) -> float | None:
        times = [box.dies_at for box in self._boxes.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for box in self._boxes.values():
            if now >= box.dies_at:
                self._kill(box)
                box.dies_at = float("inf")

    def _on_message(self) -> bool:
        try:
            message = self._control.recv(_MOST_MESSAGE)
        except ConnectionResetError:  # it was killed with replies unread
            return False
        if not message:
            return False
        request = json.loads(message)
        number = request["id"]
        if request["op"] == "open":
            try:
                self._open(number, Plan.of(request["plan"]), request.get("group", ""))
            except OSError as error:
                self._reply({"id": number, "errno": error.errno or 0, "text": str(error)})
        elif number in self._boxes:
            self._kill(self._boxes[number])
        else:
            self._reply({"gone": number})
        return True

    def _reply(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        with contextlib.suppress(BrokenPipeError):  # the caller is gone, which is heard of by other ways
            socket.send_fds(self._control, [json.dumps(message).encode()], fds or [])

    def _open(self, number: int, plan: Plan, group: str) -> None:
        mine, theirs = socket.socketpair()
        gate, inner_gate = socket.socketpair()
        skipped = {"network", "pid", "ipc"} - {d for d in ("network", "pid", "ipc") if plan.has(d)}
        if group:  # its view begins at the group once it is in there
            skipped.add("cgroup")
        flags = sum(flag for name, flag in syscalls.NAMESPACE_FLAGS.items() if name not in skipped)
        slot = self._slots.pop() if self._slots else -1
        if slot < 0:
            raise OSError(11, f"{_RANGES} sandboxes are open already")
        pid = 0
        try:
            pid = syscalls.clone(flags)
            if pid == 0:
                _become(plan, theirs, inner_gate, in_group=bool(group))
            theirs.close()
            inner_gate.close()
            box = _Box(pid, slot, time.monotonic() + plan.wall_s + _GRACE_S, gate, group)
            try:
                if group:  # before it is let through its gate, so that all it ever uses is counted there
                    _put_into_group(group, pid)
                _map_ids(pid, plan, slot)
                _let_go(gate, pid, plan)
            except OSError:
                os.close(box.pidfd)
                raise
        except OSError:
            if pid > 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self._slots.append(slot)
            for one in (mine, theirs, gate, inner_gate):
                one.close()
            raise
        self._boxes[number] = box
        self._selector.register(box.pidfd, selectors.EVENT_READ, number)
        self._reply({"id": number, "pid": pid}, [mine.fileno()])
        mine.close()

    def _kill(self, box: _Box) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)

    def _on_death(self, number: int) -> None:
        """The init was reaped by us, and the kernel lets it go only after every process of its namespace."""
        box = self._boxes.pop(number)
        os.waitpid(box.pid, 0)
        self._selector.unregister(box.pidfd)
        os.close(box.pidfd)
        box.gate.close()
        self._slots.append(box.slot)
        if box.group:  # its caller may be dying too: a sandbox sees that before we do
            self._left = [*filter(os.path.exists, self._left), box.group]
        self._reply({"gone": number})

    def _end(self) -> None:
        for box in self._boxes.values():
            self._kill(box)
        for box in self._boxes.values():
            os.waitpid(box.pid, 0)
        groups = [*self._left, *(box.group for box in self._boxes.values() if box.group)]
        for group in groups:  # where the caller was killed nobody else would
            _remove_group(group)
        for base in {os.path.dirname(group) for group in groups}:  # noqa: PTH120 - the caller's own
            _remove_group(base)


def _put_into_group(group: str, pid: int) -> None:
    fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(pid).encode())
    finally:
        os.close(fd)


def _remove_group(group: str, patience_s: float = 10.0) -> None:
    """The kernel counts a reaped process out of its group a moment later, on a busy machine seconds later."""
    end = time.monotonic() + patience_s
    while True:
        try:
            os.rmdir(group)  # noqa: PTH106
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                return
            time.sleep(0.002)
        else:
            return


def _let_go(gate: socket.socket, pid: int, plan: Plan) -> None:
    """Tell the child that its ids are mapped; with its image tree seen through them, where that can be."""
    fds: list[int] = []
    if plan.tree and plan.mode == "range":
        user_namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # an old kernel or file system: then the tree's owners are nobody inside
            fds.append(syscalls.idmapped_tree(plan.tree, user_namespace))
        os.close(user_namespace)
    socket.send_fds(gate, [b"g"], fds)
    for fd in fds:
        os.close(fd)


def _become(plan: Plan, channel: socket.socket, gate: socket.socket, *, in_group: bool) -> None:
    """The child's way: wait until its ids are mapped, confine itself, say so, serve. Does not return."""
    try:
        if plan.has("close_descriptors"):  # first of all: a copy of the launcher's ends would hide that it died
            syscalls.close_all_but([0, 1, 2, channel.fileno(), gate.fileno()])
        if plan.has("parent_death"):
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        said, fds, _, _ = socket.recv_fds(gate, 1, 1)
        if not said:
            os._exit(1)
        if in_group:
            syscalls.unshare(syscalls.CLONE_NEWCGROUP)
        root_fd = confine.confine(plan, channel.fileno(), fds[0] if fds else None, gate.fileno())
        gate.close()
        socket.send_fds(channel, [pack({"ready": True})], [root_fd])
        os.close(root_fd)
        agent.main(channel, plan)
    except BaseException as error:  # noqa: BLE001 - after a clone nothing may run on into the launcher's code
        number = error.errno if isinstance(error, OSError) else 0
        with contextlib.suppress(OSError):
            channel.sendall(pack({"failed": f"{type(error).__name__}: {error}", "errno": number}))
    finally:
        os._exit(1)


def _map_ids(pid: int, plan: Plan, slot: int) -> None:
    folder = Path(f"/proc/{pid}")
    if plan.mode == "range":
        base = _RANGE_BASE + slot * _RANGE_COUNT if plan.has("unprivileged_ids") else 0
        users = groups = f"0 {base} {_RANGE_COUNT}"
    else:
        (folder / "setgroups").write_text("deny")
        users, groups = f"{plan.uid} {os.geteuid()} 1", f"{plan.gid} {os.getegid()} 1"
    (folder / "uid_map").write_text(users)
    (folder / "gid_map").write_text(groups)


def _hide_arguments() -> None:
    """Sandboxes inherit this process's command line, which tells where the package is installed."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(words[45]), int(words[46])
    title = b"sandbox-init"
    if end - start > len(title):
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title, len(title))


def main(control_fd: int) -> None:
    """Serve the caller at the other end of ``control_fd`` until it goes."""
    control = socket.socket(fileno=control_fd)
    with contextlib.suppress(OSError, ValueError):
        _hide_arguments()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller's Ctrl-C is the caller's to handle
    for prepared in (roots.etc_view, seccomp.program, confine.last_capability):
        prepared()  # once here, and not again in each child
    gc.collect()
    gc.freeze()  # children share these pages for as long as the collector does not touch them
    os.set_inheritable(control_fd, False)
    control.send(json.dumps({"launcher": os.getpid()}).encode())
    _Launcher(control).run()
