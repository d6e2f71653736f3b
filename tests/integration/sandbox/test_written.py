"""A sandbox over a layer: the host's programs can be added to, and all that was written is read from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sandbox.conftest import open_way_to

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.sandbox import ImageTree, Limits, NativeProvider, ReadOnlyMount, SandboxProvider, SandboxSpec
from flightschool.sandbox.node.rooted import Rooted
from flightschool.sandbox.written import WrittenKind

pytestmark = pytest.mark.integration

SCRIPT = """
echo hello > /app/x; chmod 000 /app/x; ln /app/x /app/y; ln -s /etc/passwd /app/link; mkfifo /app/pipe
mkdir /app/folder; ln -s cat /usr/bin/feline; rm -f /usr/bin/perl /app/was; printf '#!/bin/sh\\n' > /usr/local/bin/own
mkdir -p /usr/local/lib/deep/er; touch /tmp/t /dev/shm/s "/app/$(printf '\\377')"
chown 77:78 /app/folder; chmod 4755 /app/folder
grep CapEff /proc/self/status
"""


def layer(folder: Path) -> ImageTree:
    folder.chmod(0o755)
    (folder / "app").mkdir(mode=0o755)
    (folder / "app/was").write_text("it was")
    return ImageTree(path=str(folder), over_host=True)


def spec(tree: ImageTree, **more: Any) -> SandboxSpec:
    return SandboxSpec(root=tree, uid=0, gid=0, workdir="/app", changes=True, file_powers=True, **more)


def own_folder(place: Any, tmp_path: Path) -> Path:
    """A layer that belongs to whom the sandbox is for."""
    folder = tmp_path / "layer"
    folder.mkdir()
    if place.dropped:
        open_way_to(tmp_path)
        os.chown(folder, place.user, place.user)
    return folder


def test_everything_written_is_read_and_nothing_else(any_native: Any, tmp_path: Path) -> None:
    folder = own_folder(any_native, tmp_path)

    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        async with provider.open(spec(layer(folder))) as box:
            result = await box.exec(SCRIPT, timeout_s=30)
            assert result.ok, result
            # CHOWN, DAC_OVERRIDE, FOWNER, FSETID: nothing that reaches beyond files
            assert result.stdout.split()[-1] == b"000000000000001b"
            found = {one.path: one for one in await box.written()}
            with pytest.raises(NotFoundError):
                await box.get("/app/was")
            with pytest.raises(InputError, match="link"):
                await box.get("/app/link")
        kinds = {path: one.kind for path, one in found.items()}
        wanted = {
            "/app/x": WrittenKind.FILE,
            "/app/y": WrittenKind.FILE,
            "/app/link": WrittenKind.LINK,
            "/app/pipe": WrittenKind.ODD,
            "/app/folder": WrittenKind.FOLDER,
            "/app/was": WrittenKind.GONE,
            "/usr/bin/feline": WrittenKind.LINK,
            "/usr/local/bin/own": WrittenKind.FILE,
            "/usr/local/lib/deep/er": WrittenKind.FOLDER,
            "/tmp/t": WrittenKind.FILE,
        }
        assert {path: kinds.get(path) for path in wanted} == wanted
        assert kinds.get("/usr/bin/perl", WrittenKind.GONE) is WrittenKind.GONE
        assert found["/app/x"].data == found["/app/y"].data == b"hello\n"
        assert (found["/app/x"].mode, found["/app/folder"].mode) == (0, 0o755)
        assert found["/app/link"].target == "/etc/passwd"
        ranged = provider.name == "native-range"
        assert (found["/app/folder"].uid, found["/app/folder"].gid) == ((77, 78) if ranged else (0, 0))
        assert not [path for path in found if path.startswith(("/dev", "/proc"))]
        assert (folder / "app/was").read_text() == "it was"

    any_native.run(body)


def test_file_powers_reach_no_further(any_native: Any, tmp_path: Path) -> None:
    folder = own_folder(any_native, tmp_path)
    tries = [
        "mount -t tmpfs none /mnt",
        "echo x > /proc/sys/kernel/core_pattern",
        "python3 -c 'import os; os.setuid(5)'",
        "chroot / true",
        "mknod /app/dev c 1 3",
        "hostname other",
        "kill -9 1; sleep 0.1; false",
        "unshare -U true",
        "echo x >> /usr/bin/env",
        "rm /etc/ssl/openssl.cnf && test -e /etc/ssl",
        'python3 -c \'open("/proc/1/mem", "rb")\'',
    ]

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(spec(layer(folder))) as box:
            for command in tries:
                result = await box.exec(command, timeout_s=20)
                assert result.exit_code != 0, (command, result)

    any_native.run(body)


def test_caps_on_what_is_read_hold(native: Any, tmp_path: Path) -> None:
    folder = own_folder(native, tmp_path)

    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        tree = layer(folder)
        for command in ("truncate -s 30M a; truncate -s 30M b", "for n in $(seq 300); do mkdir d; cd d; done"):
            async with provider.open(spec(tree, limits=Limits(disk_bytes=64 << 20))) as box:
                await box.exec(command, timeout_s=30)
                with pytest.raises(InputError):
                    await box.written(most_bytes=40 << 20, most_entries=1000)

    native.run(body)


def test_changes_are_for_trees_and_asked_for(native: Any) -> None:
    with pytest.raises(InputError, match="changes"):
        SandboxSpec(changes=True)

    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        async with provider.open(SandboxSpec()) as box:
            with pytest.raises(InputError, match="written"):
                await box.written()

    native.run(body)


LINKS = ["etc", "home", "tmp", "dev", "usr", "opt", "proc", "run", "var", "root"]


@pytest.mark.parametrize("over_host", [True, False])
def test_links_of_a_tree_do_not_lead_the_set_up_into_the_host(any_native: Any, tmp_path: Path, over_host: bool) -> None:
    """The host has what they name, the tree has not: nothing is written there, and no sandbox stands on a hole."""
    folder = own_folder(any_native, tmp_path)
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o777)
    mounts = (ReadOnlyMount(source=str(target), target="/opt/present"),)

    async def body(provider: SandboxProvider) -> None:
        for name in LINKS:
            (folder / name).symlink_to(target)
            tree = ImageTree(path=str(folder), over_host=over_host)
            wanted = SandboxSpec(root=tree, uid=0, gid=0, workdir=f"/{name}/work", changes=over_host, mounts=mounts)
            with pytest.raises(InfrastructureError):
                await provider.start(wanted)
            (folder / name).unlink()

    any_native.run(body)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("text", ["/else/where", "../../../else/where"])
def test_links_of_a_tree_lead_where_they_lead_inside(any_native: Any, tmp_path: Path, text: str) -> None:
    folder = own_folder(any_native, tmp_path)
    mounts = (ReadOnlyMount(source=str(folder), target="/opt/present"),)
    look = "pwd -P; grep -c cpu /proc/stat; ls /opt/present; echo > /dev/null"

    async def body(provider: SandboxProvider) -> None:
        (folder / "else/where").mkdir(parents=True)
        tree = ImageTree(path=str(folder), over_host=True)
        for name in LINKS:
            (folder / name).symlink_to(text)
            below = "" if name == "proc" else "/work"
            wanted = SandboxSpec(root=tree, uid=0, gid=0, workdir=f"/{name}{below}", changes=True, mounts=mounts)
            async with provider.open(wanted) as box:
                told = await box.exec(f"readlink /{name}; {look}")
                assert told.ok, (name, told)
                assert told.stdout.startswith(f"{text}\n/else/where{below}\n".encode()), (name, told)
                assert b"else" in told.stdout.split()
                if name == "dev":
                    assert (await box.exec("test -c /else/where/null")).ok
            (folder / name).unlink()

    any_native.run(body)
    assert [path.name for path in (folder / "else/where").iterdir()] == []


def test_what_stands_in_the_way_of_accounts_keeps_no_sandbox_from_starting(any_native: Any, tmp_path: Path) -> None:
    folder = own_folder(any_native, tmp_path)

    async def body(provider: SandboxProvider) -> None:
        (folder / "etc/hosts").mkdir(parents=True)
        (folder / "etc/group").symlink_to("/no/where")
        (folder / "etc/shells").mkdir()
        tree = ImageTree(path=str(folder), over_host=True)
        async with provider.open(SandboxSpec(root=tree, uid=0, gid=0, workdir="/", changes=True)) as box:
            told = await box.exec("test -d /etc/hosts && test -d /etc/shells && cut -d: -f1 /etc/passwd /etc/group")
            assert told.stdout.startswith(b"root\n"), told

    any_native.run(body)


def test_accounts_of_a_tree_and_a_link_among_its_program_folders_stay(any_native: Any, tmp_path: Path) -> None:
    """What the tree has below /usr stands, links and files on the way included; accounts stand as a whole."""
    folder = own_folder(any_native, tmp_path)

    async def body(provider: SandboxProvider) -> None:
        for name in ("etc", "usr/local", "tools"):
            (folder / name).mkdir(parents=True)
        (folder / "etc/passwd").write_text("root:x:0:0:only:/root:/bin/sh\n")
        (folder / "etc/shells").symlink_to("/no/where")
        (folder / "usr/local/bin").symlink_to("/tools")
        (folder / "tools/own").write_text("#!/bin/sh\necho own\n")
        (folder / "tools/own").chmod(0o755)
        tree = ImageTree(path=str(folder), over_host=True)
        wanted = SandboxSpec(root=tree, uid=0, gid=0, workdir="/", changes=True)
        async with provider.open(wanted) as box:
            look = "cut -d: -f5 /etc/passwd; readlink /etc/shells /usr/local/bin; own; test -e /etc/group"
            told = await box.exec(look)
            assert told.stdout == b"only\n/no/where\n/tools\nown\n", told
            assert told.exit_code == 1

    any_native.run(body)


def test_names_are_resolved_while_the_host_renames(tmp_path: Path) -> None:
    """The kernel gives up on `..` when anything is renamed or mounted meanwhile, anywhere: then it is asked again."""
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/b/up").symlink_to("../../a/b/../..")
    (tmp_path / "x").touch()
    pid = os.fork()
    if pid == 0:
        while True:
            (tmp_path / "x").rename(tmp_path / "y")
            (tmp_path / "y").rename(tmp_path / "x")
    under = Rooted(str(tmp_path / "root"), has_links=True)
    try:
        for _ in range(3000):
            assert under.real("/a/b/up/a/b") == str(tmp_path / "root/a/b")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        under.close()
