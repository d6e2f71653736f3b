"""Trees are written as a builder would, and never beyond themselves; stand-ins and presence tell what is there."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from flightschool.environments.terminal import PackageRequest
from flightschool.environments.terminal.trees import Presence, Tree, find_account
from flightschool.environments.terminal.trees.accounts import find_owner
from flightschool.environments.terminal.trees.presence import write_stand_ins
from flightschool.errors import InputError
from flightschool.sandbox.written import Written, WrittenKind

FILE, FOLDER, LINK, GONE, ODD = (
    WrittenKind.FILE,
    WrittenKind.FOLDER,
    WrittenKind.LINK,
    WrittenKind.GONE,
    WrittenKind.ODD,
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "tree"
    root.mkdir()
    return Tree(root, over_host=False)


@pytest.mark.parametrize("target", ["/", "/etc", "../..", "../../outside", "/proc/self/root"])
def test_links_of_a_tree_never_lead_the_builder_out(tree: Tree, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    tree.link("/app", target)
    with contextlib.suppress(InputError):
        tree.write("/app/planted", b"x")
    with contextlib.suppress(InputError):
        tree.make_folder("/app/planted-too")
    tree.read("/app/passwd")
    assert not Path("/etc/planted").exists()
    assert not Path("/planted").exists()
    assert list((tmp_path / "outside").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_link_inside_the_tree_is_followed_as_the_tree_means_it(tree: Tree) -> None:
    tree.make_folder("/usr/bin")
    tree.link("/bin", "usr/bin")
    tree.link("/opt/here", "/usr")
    tree.write("/bin/tool", b"a", mode=0o4755)
    tree.write("/opt/here/bin/other", b"b")
    assert (tree.root / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (tree.root / "usr/bin/other").read_bytes() == b"b"
    assert tree.is_folder("/opt/here/bin")
    assert (tree.has("/bin"), tree.has("/bin/tool"), tree.link_text("/bin")) == (True, False, "usr/bin")


def test_changes_are_laid_over_exactly_and_originals_stay(tree: Tree, tmp_path: Path) -> None:
    for path in ("/app/a", "/app/b", "/app/d/e", "/keep/x"):
        tree.write(path, path.encode())
    tree.link("/app/away", "/etc")
    tree.make_folder("/empty")
    copy = tree.copy_to(_made(tmp_path / "copy"))
    copy.apply(
        [
            Written(path="/app", kind=FOLDER, mode=0o700),
            Written(path="/app/a", kind=FILE, mode=0o600, data=b"new", modified_ns=10**18),
            Written(path="/app/away", kind=FOLDER, mode=0o755),
            Written(path="/app/away/hosts", kind=FILE, mode=0o644, data=b"mine"),
            Written(path="/app/b", kind=GONE),
            Written(path="/app/d", kind=LINK, target="a"),
            Written(path="/app/pipe", kind=ODD),
            Written(path="/keep", kind=FOLDER, mode=0o755, opaque=True),
            Written(path="/nothing", kind=GONE),
        ]
    )
    found = sorted(str(path.relative_to(copy.root)) for path in copy.root.rglob("*"))
    assert found == ["app", "app/a", "app/away", "app/away/hosts", "app/d", "empty", "keep"]
    assert (copy.root / "app/a").stat().st_mtime_ns == 10**18
    assert (tree.root / "app/a").read_bytes() == b"/app/a"
    assert (tree.root / "app/d/e").exists()


def test_a_change_by_way_of_a_link_is_refused(tree: Tree) -> None:
    tree.link("/app", "/etc")
    with pytest.raises(OSError, match="symbolic"):
        tree.apply([Written(path="/app/x", kind=FILE, data=b"x")])


def test_copies_share_files_until_one_of_them_replaces_its_own(tree: Tree, tmp_path: Path) -> None:
    tree.write("/a", b"1")
    copy = tree.copy_to(_made(tmp_path / "copy"), shared=True)
    assert copy.identity("/a") == tree.identity("/a")
    copy.write("/a", b"2")
    assert copy.identity("/a") != tree.identity("/a")
    assert (tree.root / "a").read_bytes() == b"1"


def test_a_file_of_a_layers_copy_has_no_link_but_those_of_the_layer(tmp_path: Path) -> None:
    """``gzip`` leaves a file alone that has another link, so a shared file would fail honest work."""
    tree = Tree(_made(tmp_path / "tree"), over_host=True)
    for path in ("/one", "/two", "/script"):
        tree.write(path, path.encode())
    (tree.root / "script").chmod(0o4755)
    os.utime(tree.root / "script", ns=(5, 10**18))
    (tree.root / "again").hardlink_to(tree.root / "two")
    copy = tree.copy_to(_made(tmp_path / "copy"))
    links = {path.name: path.stat().st_nlink for path in copy.root.iterdir()}
    assert links == {"one": 1, "two": 2, "again": 2, "script": 1}
    assert copy.identity("/again") == copy.identity("/two") != tree.identity("/two")
    found = (copy.root / "script").stat()
    assert (found.st_mode & 0o7777, found.st_mtime_ns) == (0o4755, 10**18)


def test_accounts_are_the_trees_own(tree: Tree) -> None:
    tree.write("/etc/passwd", b"root:x:0:0::/root:/bin/sh\nclerk:x:1001:1002::/srv/clerk:/bin/sh\nbroken\n")
    tree.write("/etc/group", b"clerk:x:1002:\nstaff:x:50:\n")
    clerk = find_account(tree, "clerk", "here")
    assert (clerk.uid, clerk.gid, clerk.home) == (1001, 1002, "/srv/clerk")
    assert find_account(tree, "1001:staff", "here").gid == 50
    assert (find_account(tree, "7:8", "here").uid, find_account(tree, "", "here").uid) == (7, 0)
    assert (find_owner(tree, "7", "here"), find_owner(tree, "clerk", "here")) == ((7, 7), (1001, 1002))
    for unknown in ("nobody-here", "clerk:nobody-here", "70000"):
        with pytest.raises(InputError, match="here"):
            find_account(tree, unknown, "here")


PRESENCE = Presence(apt={"git": "1:2.39", "g++": "4:12"}, pip={"numpy": "2.1.0", "pyyaml": "6.0"})


@pytest.mark.parametrize(
    ("manager", "name", "specifier", "there"),
    [
        ("apt", "git", "", True),
        ("apt", "git", "=1:2.39", True),
        ("apt", "git", "=1:2.40", False),
        ("apt", "curl", "", False),
        ("pip", "numpy", ">=2,<3", True),
        ("pip", "numpy", "==1.26", False),
        ("pip", "pyyaml", "", True),
        ("pip", "numpy", ">>2", False),
    ],
)
def test_a_request_is_met_by_name_and_version(manager: str, name: str, specifier: str, there: bool) -> None:
    assert PRESENCE(PackageRequest(manager=manager, name=name, specifier=specifier)) is there


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["apt-get", "update"], 0),
        (["apt-get", "install", "-y", "--no-install-recommends", "git", "g++"], 0),
        (["apt-get", "-o", "Dpkg::Use-Pty=0", "install", "git=1:2.39"], 0),
        (["apt-get", "install", "git=1:9"], 100),
        (["apt", "install", "git", "curl"], 100),
        (["pip", "install", "--no-cache-dir", "numpy>=2", "PyYAML"], 0),
        (["pip3", "install", "-r", "wanted.txt"], 0),
        (["pip", "install", "torch"], 1),
        (["pip", "install", "-r", "missing.txt"], 1),
    ],
)
def test_stand_ins_are_content_with_what_is_there_only(tmp_path: Path, command: list[str], code: int) -> None:
    write_stand_ins(tmp_path / "present", PRESENCE)
    (tmp_path / "wanted.txt").write_text("# two\nnumpy==2.1.0\npy_yaml\n".replace("py_yaml", "PyYAML"))
    (tmp_path / "missing.txt").write_text("numpy\nscipy")
    place = tmp_path / "present/bin"
    env = {"PATH": f"{place}:{os.environ['PATH']}"}
    done = subprocess.run([place / command[0], *command[1:]], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == code, done


def _made(path: Path) -> Path:
    path.mkdir()
    return path
