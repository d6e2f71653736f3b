"""Images of tasks, built once and kept by digest: whole or not at all, since a tree gets its name when it is done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from flightschool.digest import digest
from flightschool.environments.terminal.building import build_files, plan_build
from flightschool.environments.terminal.contents import Contents, list_contents
from flightschool.environments.terminal.fetching import Fetch, fetches_of_script
from flightschool.environments.terminal.keystrokes import SOLUTION_KEYS, typed_text
from flightschool.environments.terminal.plan_records import BuildPlan, Need, Obstacle, Readiness, RunStep
from flightschool.environments.terminal.records import TerminalTask
from flightschool.environments.terminal.trees.accounts import find_account
from flightschool.environments.terminal.trees.bases import furnish
from flightschool.environments.terminal.trees.laying import Tree
from flightschool.environments.terminal.trees.memory import memory_folder
from flightschool.environments.terminal.trees.presence import (
    STAND_INS,
    Presence,
    find_presence,
    stand_ins_digest,
    write_stand_ins,
)
from flightschool.environments.terminal.trees.records import Image, NotRunnable, Substitution
from flightschool.environments.terminal.trees.replay import Builders, replay
from flightschool.errors import InputError
from flightschool.sandbox import ImageTree, NativeProvider, ReadOnlyMount, SandboxSpec
from flightschool.sandbox.written import Written

__all__ = ["ImageStore"]

SHAPE: Final = 2
"""Raised when trees are made in another way, so that old ones are not used."""
_TREE, _RECORD = "tree", "image.json"
_PROJECT_FILES: Final = frozenset({"pyproject.toml", "uv.lock", "uv.toml"})
_SCRATCH: Final = ".scratch-"
_LEND: Final = "--build-network lends such steps this machine's network, for tasks whose authors you trust"
_PROVIDE: Final = (
    "tests never have a network: give the base exactly what they ask for, as an unpacked system at {place}, or install "
    "it in the Dockerfile and build with --build-network"
)
MOST_IN_MEMORY: Final = 48 << 20
"""Bytes of a tree, and of what is laid over it, that are copied into memory."""


class _Base(msgspec.Struct, frozen=True):
    image: ImageTree | None
    presence: Presence
    stand_ins: Path
    description: str
    digest: str


class ImageStore:
    """Builds images below one folder, with one provider.

    Args:
        folder: where trees are kept; made if it is not there, readable by its owner only.
        provider: the native one; owned by the caller.
        base_trees: folder with unpacked images (``ubuntu_24.04`` for ``ubuntu:24.04``), by default ``base-trees``
            beside ``folder``; an image that is not there is stood in for by the curated view of the host.
        networked: lends this machine's network to steps of builds that fetch; owned by the caller. None: such a task
            *needs network*.
    """

    def __init__(
        self,
        folder: Path,
        provider: NativeProvider,
        *,
        base_trees: Path | None = None,
        networked: NativeProvider | None = None,
    ) -> None:
        self._folder = folder
        self._provider = provider
        self._networked = networked
        self._base_trees = base_trees or folder.parent / "base-trees"
        self._bases: dict[str, _Base] = {}
        self._own: dict[str, tuple[Presence, Path]] = {}
        """Digest of an image whose build fetched → its own packages and stand-ins."""
        self._sizes: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        _sweep(folder)
        self._memory = memory_folder()
        if self._memory is not None:
            _sweep(self._memory)

    async def build(self, task: TerminalTask) -> Image | NotRunnable:
        """The image of a task, from the cache where it was built before.

        Raises:
            BuildError: a command of the build failed.
            InputError: the Dockerfile cannot build anywhere.
        """
        plan = plan_build(task)
        base = await self._base(plan.base)
        if any(isinstance(step, RunStep) and step.fetches for step in plan.steps):
            plan = plan_build(task, is_present=base.presence)
        lent = self._networked is not None and plan.readiness is Readiness.NEEDS_NETWORK
        if plan.readiness is not Readiness.REPLAYABLE and not lent:
            need = Need.DOCKER if plan.readiness is Readiness.NEEDS_DOCKER else Need.NETWORK
            mend = _LEND if need is Need.NETWORK else ""
            return NotRunnable(need=need.value, obstacles=tuple(o for o in plan.obstacles if o.need is need), mend=mend)
        key = digest(["image", SHAPE, plan.digest, base.digest, plan.workdir, plan.user, plan.env, *["lent"] * lent])
        return await self._looked_into(self._kept(key) or await self._make(key, task, plan, base))

    async def kept(self, key: str) -> Image | None:
        """An image that was built before and whose base is as it was; None: there is none."""
        image = self._kept(key)
        if image is None or (await self._base(image.base.image)).digest != image.base.digest:
            return None
        return await self._looked_into(image)

    async def _looked_into(self, image: Image) -> Image:
        """The image; what it has is asked of itself where its build fetched, which may have installed packages."""
        if image.networked and image.digest not in self._own:
            tree = ImageTree(path=image.tree, over_host=image.over_host)
            presence = await find_presence(self._provider, tree)
            self._own[image.digest] = presence, self._stand_ins_of(presence)
        return image

    async def _presence(self, image: Image) -> Presence:
        own = self._own.get(image.digest)
        return own[0] if own is not None else (await self._base(image.base.image)).presence

    async def fetches(self, task: TerminalTask, image: Image, scripts: tuple[str, ...]) -> NotRunnable | None:
        """Whether scripts of the task would fetch what is not there; None: they do not.

        Args:
            scripts: paths in the task's folder.
        """
        contents = list_contents(Path(task.folder))
        has_project = any(path.rpartition("/")[2] in _PROJECT_FILES for path in contents.entries)
        presence = await self._presence(image)
        found: list[Obstacle] = []
        for script, fetch in self._fetches_of(contents, scripts):
            reason = "" if fetch.index_only else _unmet(fetch, presence, has_project=has_project)
            if reason:
                found.append(Obstacle(need=Need.NETWORK, file=script, line=0, reason=reason))
        if not found:
            return None
        mend = _PROVIDE.format(place=self._base_trees / _tree_name(image.base.image))
        return NotRunnable(need=Need.NETWORK.value, obstacles=tuple(found), mend=mend)

    async def stood_in(self, task: TerminalTask, image: Image, scripts: tuple[str, ...]) -> tuple[str, ...]:
        """What scripts and the build ask of package managers and have by what stands in for them, in words.

        Args:
            scripts: paths in the task's folder.
        """
        plan = plan_build(task)
        asked = [fetch for step in plan.steps if isinstance(step, RunStep) for fetch in step.fetches]
        asked += [fetch for _, fetch in self._fetches_of(list_contents(Path(task.folder)), scripts)]
        presence = await self._presence(image)
        lines = [presence.told(package) for fetch in asked for package in fetch.packages]
        return tuple(dict.fromkeys(lines))

    @staticmethod
    def _fetches_of(contents: Contents, scripts: tuple[str, ...]) -> Iterator[tuple[str, Fetch]]:
        for script in scripts:
            try:
                text = contents.read_text(script)
                text = typed_text(text) if script == SOLUTION_KEYS else text
            except InputError:  # no text, so no script that a shell would read
                continue
            yield from ((script, fetch) for fetch in fetches_of_script(text, {}))

    async def has_python(self, image: Image) -> bool:
        """Whether an image has a Python that scripts find by its name."""
        return bool((await self._presence(image)).python)

    def stand_ins(self, image: Image) -> ReadOnlyMount:
        """The mount that every sandbox of an image has."""
        own = self._own.get(image.digest)
        folder = own[1] if own is not None else self._bases[image.base.image].stand_ins
        return ReadOnlyMount(source=str(folder), target=STAND_INS)

    async def base_tree(self, image: Image) -> Tree:
        """The tree that an image began with."""
        return await self._base_tree(await self._base(image.base.image))

    @contextlib.contextmanager
    def scratch(self, tree: Tree | None = None, over: Iterable[Written] = ()) -> Iterator[Path]:
        """An empty folder for a copy of ``tree`` with what is laid over it; removed after the block.

        A small layer is copied into memory, where there is a file system for that: on disks files that come and go by
        the thousand cost more than what is done with them. All else lies beside the trees, so that files can be shared
        with them. Removing takes longer than an episode on some disks, so it is done aside; the event loop's end waits
        for it.
        """
        place = self._folder
        if self._memory is not None and tree is not None and tree.over_host:
            num_bytes = self._size(tree) + sum(len(entry.data) for entry in over)
            place = self._memory if num_bytes <= MOST_IN_MEMORY else place
        folder = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=place))
        try:
            yield _made(folder / _TREE)
        finally:
            asyncio.get_running_loop().run_in_executor(None, lambda: shutil.rmtree(folder, ignore_errors=True))

    def _size(self, tree: Tree) -> int:
        """Bytes of a tree, counted once."""
        key = str(tree.root)
        if key not in self._sizes:
            found = (Path(folder, name) for folder, _, names in os.walk(key) for name in names)
            self._sizes[key] = sum(path.lstat().st_size for path in found)
        return self._sizes[key]

    # -------------------------------------------------------------------------------------------- images

    def _kept(self, key: str) -> Image | None:
        place = self._folder / _name(key)
        try:
            image = msgspec.json.decode((place / _RECORD).read_bytes(), type=Image)
        except (OSError, msgspec.DecodeError):
            return None
        return msgspec.structs.replace(image, tree=str(place / _TREE), cached=True)

    async def _make(self, key: str, task: TerminalTask, plan: BuildPlan, base: _Base) -> Image:
        started = time.monotonic()
        dockerfile, context = build_files(task)
        with self._aside(key) as aside:
            tree = (await self._base_tree(base)).copy_to(_made(aside / _TREE), shared=True)
            await replay(
                plan,
                tree,
                Path(task.folder, context),
                Builders(plain=self._provider, networked=self._networked, stand_ins=base.stand_ins),
                where=dockerfile or "task.toml",
                timeout_s=task.limits.build_s or 600.0,
            )
            workdir = task.workdir or plan.workdir
            account = find_account(tree, plan.user, dockerfile)
            tree.make_folder(workdir, owner=(account.uid, account.gid))
            image = Image(
                tree=str(aside / _TREE),
                digest=key,
                over_host=tree.over_host,
                base=Substitution(image=plan.base, stand_in=base.description, digest=base.digest),
                workdir=workdir,
                account=account,
                env=plan.env,
                build_s=time.monotonic() - started,
                networked=tuple(f"{dockerfile}:{step.line}" for step in plan.steps if step.obstacles),
            )
            (aside / _RECORD).write_bytes(msgspec.json.encode(image))
        kept = self._kept(key)
        if kept is None:
            raise InputError(
                "a built image vanished", where=str(self._folder), expected="a folder of our own", mend="build again"
            )
        return msgspec.structs.replace(kept, cached=False)

    @contextlib.contextmanager
    def _aside(self, key: str) -> Iterator[Path]:
        """A folder that gets the key's name when the block ends well, and is removed otherwise."""
        aside = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=self._folder))
        try:
            yield aside
            with contextlib.suppress(OSError):  # another one was quicker, with the same content
                aside.rename(self._folder / _name(key))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    # -------------------------------------------------------------------------------------------- bases

    async def _base(self, image: str) -> _Base:
        if image in self._bases:
            return self._bases[image]
        tree = self._named_tree(image)
        presence = await find_presence(self._provider, tree)
        if tree is None:
            description = f"curated view of this machine ({_system_name()})"
            key = digest(["host", SHAPE, _system_name(), platform.machine(), presence, os.geteuid() == 0])
        else:
            description = f"tree {Path(tree.path).name}"
            modified = Path(tree.path).stat().st_mtime_ns
            key = digest(["tree", SHAPE, tree.path, modified, presence, os.geteuid() == 0])
        self._bases[image] = _Base(tree, presence, self._stand_ins_of(presence), description, key)
        return self._bases[image]

    def _stand_ins_of(self, presence: Presence) -> Path:
        stand_ins = self._folder / f"present-{_name(stand_ins_digest(presence))}"
        if not stand_ins.is_dir():
            with self._aside_named(stand_ins) as aside:
                write_stand_ins(aside, presence)
        return stand_ins

    @contextlib.contextmanager
    def _aside_named(self, place: Path) -> Iterator[Path]:
        aside = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=self._folder))
        try:
            yield aside
            with contextlib.suppress(OSError):
                aside.rename(place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _named_tree(self, image: str) -> ImageTree | None:
        name = _tree_name(image)
        place = self._base_trees / name
        if name.startswith(".") or not place.is_dir():  # `FROM ..` would be the folder that holds everything else
            return None
        return ImageTree(path=str(place.resolve()))

    async def _base_tree(self, base: _Base) -> Tree:
        """The base with what the start of a sandbox adds to it, so that later starts add nothing."""
        place = self._folder / f"base-{_name(base.digest)}"
        if not place.is_dir():
            with self._aside_named(place) as aside:
                over_host = base.image is None
                root = _made(aside / _TREE)
                tree = Tree(root, over_host=over_host)
                if base.image is None:
                    furnish(tree)
                else:
                    tree = Tree(Path(base.image.path), over_host=False).copy_to(root, shared=True)
                spec = SandboxSpec(
                    root=ImageTree(path=str(root), over_host=over_host),
                    uid=0,
                    gid=0,
                    workdir="/",
                    changes=True,
                    mounts=(ReadOnlyMount(source=str(base.stand_ins), target=STAND_INS),),
                )
                async with self._provider.open(spec) as box:
                    written = await box.written()
                tree.apply(written)
        return Tree(place / _TREE, over_host=base.image is None)


def _unmet(fetch: Fetch, presence: Presence, *, has_project: bool) -> str:
    """Why a command would need the network; empty: all that it asks for is there."""
    if not fetch.packages:
        return fetch.reason
    missing = [presence.lack(one) for one in fetch.packages if not presence(one)]
    if missing:
        return f"{fetch.tool} wants what is not there: {', '.join(dict.fromkeys(missing))}"
    in_project = fetch.project or (has_project and _in_project(fetch))
    return f"{fetch.reason}, and a project may ask for more" if in_project else ""


def _tree_name(image: str) -> str:
    """Name of the folder of an unpacked base image."""
    return image.replace("/", "_").replace(":", "_")


def _in_project(fetch: Fetch) -> bool:
    """Whether a project that the task ships may change what is asked for."""
    return fetch.tool in ("uv run", "uv init", "uv add", "uv venv")


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left unfinished."""
    for place in folder.glob(f"{_SCRATCH}*"):
        pid = place.name.removeprefix(_SCRATCH).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(place, ignore_errors=True)


def _made(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    return path


def _name(key: str) -> str:
    return key.removeprefix("sha256:")[:32]


def _system_name() -> str:
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    return facts.get("PRETTY_NAME", facts.get("ID", "Linux"))
