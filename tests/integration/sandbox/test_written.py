"""A sandbox over a layer: the host's programs can be added to, and all that was written is read from outside."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.sandbox import ImageTree, Limits, NativeProvider, ReadOnlyMount, SandboxProvider, SandboxSpec
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
    import os

    folder = tmp_path / "layer"
    folder.mkdir()
    if place.dropped:
        for path in (tmp_path, *list(tmp_path.parents)[:2]):
            path.chmod(0o755)
        os.chown(folder, place.user, place.user)
    return folder


def test_everything_written_is_read_and_nothing_else(native: Any, tmp_path: Path) -> None:
    folder = own_folder(native, tmp_path)

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

    native.run(body)


def test_file_powers_reach_no_further(native: Any, tmp_path: Path) -> None:
    folder = own_folder(native, tmp_path)
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

    native.run(body)


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


@pytest.mark.parametrize("name", ["etc", "home", "tmp", "dev", "usr", "opt"])
@pytest.mark.parametrize("over_host", [True, False])
def test_links_of_a_tree_do_not_lead_the_set_up_into_the_host(
    native: Any, tmp_path: Path, name: str, over_host: bool
) -> None:
    folder = own_folder(native, tmp_path)
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o777)
    (folder / name).symlink_to(target)
    mounts = (ReadOnlyMount(source=str(folder), target="/opt/present"),)

    async def body(provider: SandboxProvider) -> None:
        tree = ImageTree(path=str(folder), over_host=over_host)
        with contextlib.suppress(InfrastructureError, InputError):
            wanted = SandboxSpec(root=tree, uid=0, gid=0, workdir=f"/{name}/work", changes=over_host, mounts=mounts)
            async with provider.open(wanted) as box:
                await box.exec(["true"], timeout_s=20)

    native.run(body)
    assert list(target.iterdir()) == []
