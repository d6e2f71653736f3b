"""The native mechanism: namespaces made by a launcher process of our own, without a daemon and without root."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

from flightschool.errors import InfrastructureError, InputError
from flightschool.sandbox.cgroups import ControlGroup, ControlGroups, find_control_groups
from flightschool.sandbox.enforcement import native_enforcement
from flightschool.sandbox.helper import Helper, find_helper
from flightschool.sandbox.launching import Launcher, plan_of
from flightschool.sandbox.live import AgentSandbox, closing
from flightschool.sandbox.node.plan import DEFENCES
from flightschool.sandbox.node.syscalls import MACHINE, NUMBERS
from flightschool.sandbox.recipes import knows
from flightschool.sandbox.records import Enforcement, Mechanism, SandboxSpec

__all__ = ["NativeProvider"]

_MODES: Final = ("range", "single")


class NativeProvider:
    """Sandboxes by namespaces. The launcher is started with the first one, and again if it was killed.

    Args:
        mode: ``range`` maps the sandbox's ids to an unprivileged range of the host's (needs root); ``single`` maps one
            id to the caller's own (refused for root: it would be the host's root).
        without: defences to leave out (``node.plan.DEFENCES``). For tests that show what a defence is good for; a
            weakened sandbox says so in its ``enforcement``.
        helper: True: by the native helper, False: by the launcher in Python; None: by the helper where there is one.
            A spec that the helper does not know, and a weakened sandbox, are the Python launcher's in any case.
        groups: control groups to use; None: those that are found by trying, if any. They are closed with the provider.

    Raises:
        InputError: an unknown mode or defence, or ``single`` as root; a helper that is wanted and cannot be had.
    """

    harvests_after_stop = True

    def __init__(
        self,
        *,
        mode: str | None = None,
        without: Collection[str] = (),
        helper: bool | None = None,
        groups: ControlGroups | None = None,
    ) -> None:
        self._mode = mode or ("range" if os.geteuid() == 0 else "single")
        if self._mode not in _MODES or set(without) - set(DEFENCES):
            raise InputError(
                f"mode {mode!r} without {sorted(without)}",
                where="NativeProvider",
                expected=f"one of {_MODES}; defences of {DEFENCES}",
                mend="correct the name",
            )
        if self._mode == "single" and os.geteuid() == 0:
            raise InputError(
                "for ordinary users: as root its one id would be the host's root",
                where="mode",
                expected="range, as root",
                mend="nothing: native-range is the one for root",
            )
        self._without = sorted(without)
        self._helper = helper
        if helper and not (found := find_helper()).program:
            raise InputError(
                found.found, where="helper", expected="the native helper", mend="install a C compiler, or leave it open"
            )
        self._found: Helper | None = None
        self._groups: ControlGroups | str | None = groups
        self._launchers: dict[str, Launcher] = {}
        """By program of the helper; empty for the launcher in Python."""
        self._boxes: set[AgentSandbox] = set()

    @property
    def name(self) -> str:
        """``native-range`` or ``native-single``."""
        return f"native-{self._mode}"

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[AgentSandbox]:
        """A fresh sandbox for a block (see ``protocols.SandboxProvider``)."""
        async with closing(await self.start(spec)) as box:
            yield box

    async def start(self, spec: SandboxSpec) -> AgentSandbox:
        """A fresh sandbox (see ``protocols.SandboxProvider``)."""
        if not NUMBERS:
            raise InputError(
                f"machine {MACHINE}", where="native", expected="x86_64 or aarch64", mend="use another mechanism"
            )
        plan = plan_of(spec, self._mode, self._without)
        helper = Helper("", "weakened, or a spec that the native helper does not know")
        if self._helper is not False and knows(plan):
            if self._found is None:
                self._found = await asyncio.to_thread(find_helper)
            helper = self._found
        launcher = await self._running_launcher(helper.program)
        try:
            return await self._make(spec, plan, launcher, helper)
        except InfrastructureError:
            if not launcher.dead:
                raise
        # It had been killed and nobody had noticed. Nothing was run in the sandbox yet: another launcher may make it.
        return await self._make(spec, plan, await self._running_launcher(helper.program), helper)

    async def _make(self, spec: SandboxSpec, plan: dict[str, Any], launcher: Launcher, helper: Helper) -> AgentSandbox:
        groups, group = await self._group(spec)
        try:
            number, channel = await launcher.open_box(plan, str(group.path) if group else "")
        except BaseException:
            if group is not None:
                await asyncio.to_thread(group.remove)
            raise
        destroyed: list[AgentSandbox] = []

        async def destroy() -> None:
            self._boxes.difference_update(destroyed)
            await launcher.close_box(number)
            if group is not None:
                await asyncio.to_thread(group.remove)

        enforcement = (*native_enforcement(spec, self._mode, self._without, groups), _maker(helper))
        box = AgentSandbox(spec, channel, destroy, enforcement, oom_kills=group.oom_kills if group else None)
        destroyed.append(box)
        self._boxes.add(box)
        try:
            await box.ready()
        except BaseException:
            await asyncio.shield(box.close())
            raise
        return box

    async def try_out(self) -> Mechanism:
        """Make one sandbox and run ``true`` in it."""
        try:
            async with self.open(SandboxSpec()) as box:
                result = await box.exec(["true"], timeout_s=20)
        except (InfrastructureError, InputError) as error:
            return Mechanism(name=self.name, works=False, found=error.what, mend=_mend(error.what))
        if not result.ok:
            return Mechanism(name=self.name, works=False, found=f"`true` gave {result}", mend="see the result")
        ids = "an unprivileged range" if self._mode == "range" else "the caller's own"
        maker = box.enforcement[-1]
        by = f"{maker.mechanism} ({maker.bound})"
        kept = "limits kept by control groups"
        if isinstance(self._groups, str):
            kept = f"memory is watched, since {self._groups}"
        return Mechanism(
            name=self.name, works=True, found=f"a sandbox ran `true`; its ids are {ids}; by the {by}; {kept}"
        )

    async def aclose(self) -> None:
        """Close every sandbox and end the launcher."""
        try:
            for box in list(self._boxes):
                await box.close()
        finally:
            while self._launchers:
                await self._launchers.popitem()[1].end()
            if isinstance(self._groups, ControlGroups):
                await asyncio.to_thread(self._groups.close)
                self._groups = None

    @property
    def launcher_pid(self) -> int | None:
        """Process id of the launcher that was started last, while it runs."""
        return next((launcher.pid for launcher in reversed(self._launchers.values())), None)

    async def _group(self, spec: SandboxSpec) -> tuple[ControlGroups | str, ControlGroup | None]:
        """A control group for one sandbox; a weakened one, and one where they cannot be made, has none."""
        if self._without:
            return "a weakened sandbox has none", None
        if self._groups is None:
            self._groups = await asyncio.to_thread(find_control_groups)
        if isinstance(self._groups, str):
            return self._groups, None
        try:
            return self._groups, await asyncio.to_thread(self._groups.make, spec.limits)
        except OSError as error:
            raise InfrastructureError(
                f"no control group can be made: {error}",
                where=str(self._groups.base),
                expected="a group as the first ones",
                mend="see `flightschool doctor`",
            ) from error

    async def _running_launcher(self, helper: str) -> Launcher:
        loop = asyncio.get_running_loop()
        known = self._launchers.get(helper)
        if known is not None and (known.dead or known.loop is not loop):
            del self._launchers[helper]
            await known.end()
        if helper not in self._launchers:
            self._launchers[helper] = Launcher(self._without, helper)
        return self._launchers[helper]


def _maker(helper: Helper) -> Enforcement:
    """What made the sandbox: for its record."""
    if helper.program:
        return Enforcement(limit="launcher", mechanism="launcher and agent in C", bound=helper.found)
    return Enforcement(limit="launcher", mechanism="launcher and agent in Python", bound=helper.found)


def _mend(what: str) -> str:
    if "clone" in what or "Errno 1" in what:
        return "allow unprivileged user namespaces (user.max_user_namespaces, AppArmor's restriction of them)"
    if "mount proc" in what:
        return "unmask /proc of this container, or run outside it"
    if "uid_map" in what:
        return "run as an ordinary user, or with an unprivileged id range"
    return "see the step named above"
