"""Images of tasks: bases of one's own, what is copied into them, and where the copies lie."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests import needs
from tests.integration.terminal.episodes import only

from flightschool.environments.terminal import UnreadableTask
from flightschool.environments.terminal.trees import ImageStore, Tree
from flightschool.environments.terminal.trees.images import MOST_IN_MEMORY
from flightschool.environments.terminal.trees.memory import memory_folder
from flightschool.records import Outcome
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.written import Written, WrittenKind

pytestmark = pytest.mark.integration


def small_system(folder: Path) -> Path:
    """A whole system of a few programs of this machine and the libraries that they want."""
    programs = ["sh", "cat", "mkdir", "touch", "chown", "rm", "true"]
    found = [Path(path) for name in programs if (path := shutil.which(name, path="/usr/bin"))]
    told = subprocess.run(["ldd", *map(str, found)], capture_output=True, text=True, check=True).stdout
    libraries = {Path(word) for line in told.splitlines() for word in line.split() if word.startswith("/")}
    for file in [*found, *(library for library in libraries if library.is_file())]:
        place = folder / str(file).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nclerk:x:1001:1001::/srv/clerk:/bin/sh\n")
    (folder / "etc/only-here").write_text("a system of its own\n")
    (folder / "bin").symlink_to("usr/bin")
    return folder


def test_a_base_tree_of_its_own_is_built_upon_and_never_changed(runs: Any, kit: Any) -> None:
    needs.programs("ldd", path=None)  # tells which libraries a program wants
    base = small_system(runs.folder / "base-trees" / "small_1")
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in base.rglob("*"))
    files = kit.harbor(
        "FROM small:1\nWORKDIR /app\nRUN cat /etc/only-here > told && rm /etc/only-here && chown clerk told\n"
        "RUN mkdir -p /srv/clerk && chown clerk /srv/clerk\nUSER clerk\n",
        "#!/bin/sh\ncase $(cat /app/told)$(cat /srv/clerk/done) in"
        " 'a system of its owndone') r=1 ;; *) r=0 ;; esac\n[ -e /etc/only-here ] && r=0\n"
        "[ -e /usr/bin/env ] && r=0\necho $r > /logs/verifier/reward.txt\n",
        "#!/bin/sh\nmkdir -p /tmp/x; echo done > /srv/clerk/done\n",
    )
    task = runs.task(files)
    oracle = only(runs(task, "oracle"))
    assert (oracle.attempt.detail, oracle.attempt.reward and oracle.attempt.reward.total) == ("", 1.0)
    assert oracle.details is not None
    assert oracle.details.base.stand_in == "tree small_1"
    noop = only(runs(task, "noop")).attempt
    assert noop.reward is not None
    assert noop.reward.total == 0.0
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in base.rglob("*")) == before


@pytest.mark.parametrize("image", ["..", ".", "./..", "../base-trees"])
def test_a_base_is_never_a_folder_beside_the_base_trees(runs: Any, kit: Any, image: str) -> None:
    (runs.folder / "base-trees").mkdir()
    (runs.folder / "answers-of-others").write_text("secret")
    files = kit.harbor(f"FROM {image}\nWORKDIR /app\n", kit.judge("[ ! -e /answers-of-others ]"))
    episode = only(runs(runs.task(files), "noop"))
    assert episode.details is not None
    assert episode.details.base.stand_in.startswith("curated view")
    assert episode.attempt.reward is not None
    assert episode.attempt.reward.total == 1.0


def test_archives_heredocs_wildcards_and_links_are_copied_as_a_builder_does(runs: Any, kit: Any) -> None:
    dockerfile = (
        "FROM debian:12\nARG NAME=plum\nWORKDIR /app\nADD pack.tar.gz unpacked/\nCOPY *.txt texts/\nCOPY tree/ tree/\n"
        "COPY <<END /etc/one.conf\nname=$NAME\nEND\nRUN <<'END'\nset -e\nln -s texts/a.txt first\nEND\n"
    )
    condition = (
        'read="$(cat unpacked/in/side texts/a.txt texts/b.txt first /etc/one.conf | tr "\\n" " ")"'
        '; [ "$read" = "packed a b a name=plum " ]'
        ' && [ -L tree/link ] && [ "$(cat tree/link)" = leaf ] && [ -x tree/run ] && [ ! -e texts/c.md ]'
    )
    files = kit.harbor(dockerfile, kit.judge(condition))
    task = runs.task(files | {f"environment/{name}.txt": f"{name}\n" for name in "ab"} | {"environment/c.md": "c"})
    kit.write(task / "environment/tree", {"leaf": "leaf", "run": "#!/bin/sh\n"})
    (task / "environment/tree/link").symlink_to("leaf")
    (task / "environment/tree/run").chmod(0o755)
    kit.write(runs.folder / "to-pack", {"in/side": "packed\n"})
    with tarfile.open(task / "environment/pack.tar.gz", "w:gz") as archive:
        archive.add(runs.folder / "to-pack", arcname=".")
    attempt = only(runs(task, "noop")).attempt
    assert (attempt.detail, attempt.reward and attempt.reward.total) == ("", 1.0)


def test_an_archive_that_leaves_its_folder_is_refused(runs: Any, kit: Any) -> None:
    task = runs.task(kit.harbor("FROM debian:12\nADD pack.tar /app/\n", kit.judge("true")))
    with tarfile.open(task / "environment/pack.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../../outside"))
    (result,) = runs(task, "noop")
    assert isinstance(result, UnreadableTask)
    assert "outside" in result.what
    assert result.where == "environment/Dockerfile:2"


def test_a_host_without_room_for_images_is_infrastructure_and_says_so(runs: Any, kit: Any) -> None:
    """The small disk is one of a mount namespace of this test; with room again the same task is scored."""
    needs.root("only it gives a child a disk of its own")
    dockerfile = "FROM debian:12\nWORKDIR /app\nCOPY big .\n"
    task = runs.task(kit.harbor(dockerfile, kit.judge("true"), environment__big="x" * 300_000))
    runs.images.mkdir()
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            new_mounts, private = 0x20000, 0x44000
            assert libc.unshare(new_mounts) == 0
            assert libc.mount(b"none", b"/", None, private, None) == 0
            assert libc.mount(b"none", os.fsencode(runs.images), b"tmpfs", 0, b"size=256k") == 0
            attempt = only(runs(task, "noop")).attempt
            said = f"{attempt.outcome.value} {attempt.reason.value} {attempt.reward} {attempt.detail}"
            os.write(tells, said.encode())
        finally:
            os._exit(0)
    os.close(tells)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said.startswith("infra_failure world_error None"), said
    assert "No space left" in said
    assert only(runs(task, "noop")).attempt.outcome is Outcome.SCORED


def test_copies_of_small_layers_lie_in_memory_and_large_ones_on_the_disk(tmp_path: Path) -> None:
    """Files that come and go by the thousand are dear on a disk; what is large would fill the memory."""
    memory = memory_folder()
    if memory is None:
        needs.skip("a file system in memory that keeps user attributes", "run on Linux 6.6 or newer with /dev/shm")
    layer, system = tmp_path / "layer", tmp_path / "system"
    for folder in (layer, system):
        folder.mkdir()
        (folder / "file").write_bytes(b"x" * 1000)
    large = Written(path="/app/big", kind=WrittenKind.FILE, mode=0o644, data=bytes(MOST_IN_MEMORY))
    images_folder = tmp_path / "images"

    async def places() -> list[Path]:
        provider = NativeProvider()
        try:
            store = ImageStore(images_folder, provider)
            found = []
            for asked in (
                (Tree(layer, over_host=True), ()),
                (Tree(layer, over_host=True), (large,)),
                (Tree(system, over_host=False), ()),
            ):
                with store.scratch(*asked) as folder:
                    assert not list(folder.iterdir())
                    found.append(folder.parent.parent)
            with store.scratch() as folder:
                found.append(folder.parent.parent)
            return found
        finally:
            await provider.aclose()

    assert asyncio.run(places()) == [memory, images_folder, images_folder, images_folder]
    own = [place.name for place in memory.iterdir() if place.name.startswith(f".scratch-{os.getpid()}-")]
    assert own == [], "removed after the block"
