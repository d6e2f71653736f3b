"""What goes to the grader: the task's business does, what would turn the grader does not; states add up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.sifting import Sieve
from flightschool.environments.terminal.trees import Tree
from flightschool.environments.terminal.unasked import unasked_places
from flightschool.errors import InputError
from flightschool.sandbox.written import Written, WrittenKind

FILE, FOLDER, LINK, GONE = WrittenKind.FILE, WrittenKind.FOLDER, WrittenKind.LINK, WrittenKind.GONE


def entry(path: str, kind: WrittenKind = FILE, target: str = "", data: bytes = b"") -> Written:
    return Written(path=path, kind=kind, target=target, data=data)


@pytest.fixture
def sieve(tmp_path: Path) -> Callable[[str], Sieve]:
    base = Tree(_made(tmp_path / "base"), over_host=False)
    for path in ("/usr/bin/python3", "/usr/bin/cat", "/usr/lib/python3/dist-packages/numpy/x.py", "/etc/passwd"):
        base.write(path, b"system")
    for path in ("/etc/ld.so.cache", "/usr/share/perl/5.36.0/strict.pm"):
        base.write(path, b"system")
    base.make_folder("/usr/local/bin")
    base.link("/bin", "usr/bin")
    image = base.copy_to(_made(tmp_path / "image"))
    image.write("/app/conftest.py", b"the task's")
    image.write("/usr/local/bin/greet", b"the task's")
    image.link("/app/data", "/srv/data")

    def make(instruction: str = "Do it.") -> Sieve:
        return Sieve(
            image,
            base,
            workdir="/app",
            path="/opt/present/bin:/usr/local/bin:/usr/bin:/bin",
            reserved=("/tests", "/solution", "/logs/verifier"),
            instruction=instruction,
            homes=("/root",),
        )

    return make


ROOT_HOME = "/root"
KEPT = [
    entry("/app/answer"),
    entry("/app/conftest.py"),
    entry("/app/queue.py"),
    entry("/app/pyproject.toml", data=b"[project]\nname = 'x'\n"),
    entry("/usr/local/bin/greet"),
    entry("/usr/local/bin/new-tool"),
    entry("/usr/lib/python3/dist-packages/own/mod.py"),
    entry("/etc/passwd"),
    entry("/logs/agent/notes"),
    entry("/app/link", LINK, "answer"),
    entry("/app/null", LINK, "/dev/null"),
    entry("/app/dangling", LINK, "/nowhere/at/all"),
    entry("/app/sys", LINK, "/usr/bin/cat"),
    entry("/app/gone", GONE),
    entry("/app/venv/pyvenv.cfg"),
    entry("/usr/local/include/own.h"),
    entry("/usr/local/include/own/sys/x.h"),
    entry("/usr/local/lib/libown.so.1"),
    entry("/usr/local/lib/libz.so.1.3"),
    entry("/usr/local/share/perl/5.36.0/Own/Module.pm"),
    entry("/etc/nsswitch.conf.d", FOLDER),
    entry("/app/include/assert.h"),
    entry("/app/specs"),
]
LEFT_OUT = [
    entry("/tests", LINK, "/app"),
    entry("/tests/test.sh"),
    entry("/logs", LINK, "/app"),
    entry("/logs/verifier/reward.txt"),
    entry("/app", LINK, "/home"),
    entry("/usr/bin/cat"),
    entry("/usr/bin/cat", GONE),
    entry("/usr/local/bin/cat"),
    entry("/usr/local/bin", LINK, "/app/bin"),
    entry("/usr/lib/python3/dist-packages/numpy.py"),
    entry("/usr/lib/python3/dist-packages/pytest.py"),
    entry("/usr/lib/python3/dist-packages/evil.pth"),
    entry("/usr/lib/python3/dist-packages/evil-1.dist-info/entry_points.txt"),
    entry("/usr/lib/python3/dist-packages/sitecustomize.py"),
    entry("/home/user/.local/lib/python3.11/site-packages/usercustomize.py"),
    entry("/app/sub/conftest.py"),
    entry("/pytest.ini"),
    entry("/app/setup.cfg", data=b"[tool:pytest]\naddopts=-p evil\n"),
    entry("/app/tox.ini", LINK, "other"),
    entry("/app/pytest.py"),
    entry("/app/_pytest", FOLDER),
    entry("/etc/ld.so.preload"),
    entry("/app/x", LINK, "/tests/expected"),
    entry("/app/x", LINK, "../tests"),
    entry("/app/x", LINK, "/proc/1/root"),
    entry("/app/x", LINK, "/dev/fd/3"),
    entry("/app/x", LINK, "x"),
    entry("/app/pipe", WrittenKind.ODD),
    entry("/etc/ld.so.cache", GONE),
    entry("/etc/nsswitch.conf"),
    entry("/usr/lib/libnss_own.so.2"),
    entry("/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libc.so.6"),
    entry("/usr/lib/glibc-hwcaps", LINK, "/app/libs"),
    entry("/usr/bin/pyvenv.cfg"),
    entry("/usr/pyvenv.cfg"),
    entry("/usr/bin/pybuilddir.txt"),
    entry("/usr/lib/gcc/x86_64-linux-gnu/12/specs"),
    entry("/usr/local/include/assert.h"),
    entry("/usr/local/include/stdc-predef.h"),
    entry("/usr/local/include/sys/stat.h"),
    entry("/usr/local/include/sys", LINK, "/app/sys"),
    entry("/etc/perl/strict.pm"),
    entry("/usr/local/share/perl/5.36.0/strict.pm"),
    entry("/usr/local/lib/x86_64-linux-gnu/perl/5.36.0/strict.pm"),
    entry("/etc/perl", LINK, "/app/perl"),
    entry("/usr/local/share/perl/5.36.0/File", LINK, "/app/File"),
]


@pytest.mark.parametrize("one", KEPT, ids=lambda one: f"{one.path} {one.kind} {one.target}")
def test_the_tasks_business_goes_to_the_grader(sieve: Callable[..., Sieve], one: Written) -> None:
    assert sieve().sift([one]) == ([one], [])


@pytest.mark.parametrize("one", LEFT_OUT, ids=lambda one: f"{one.path} {one.kind} {one.target}")
def test_what_would_turn_the_grader_is_left_out_and_told(sieve: Callable[..., Sieve], one: Written) -> None:
    kept, left_out = sieve().sift([one])
    assert kept == []
    assert [(out.path, bool(out.why)) for out in left_out] == [(one.path, True)]


def test_below_what_was_left_out_nothing_is_kept(sieve: Callable[..., Sieve]) -> None:
    entries = [entry("/app/pytest", FOLDER), entry("/app/pytest/__init__.py"), entry("/app/pytestx")]
    kept, left_out = sieve().sift(entries)
    assert ([one.path for one in kept], [out.path for out in left_out]) == (["/app/pytestx"], ["/app/pytest"])


def test_links_are_followed_through_one_another_and_through_the_image(sieve: Callable[..., Sieve]) -> None:
    chain = [entry("/app/a", LINK, "b/expected"), entry("/app/b", LINK, "c"), entry("/app/c", LINK, "/tests")]
    assert sieve().sift(chain)[0] == []
    through_image = [entry("/app/y", LINK, "data/z"), entry("/srv/data", LINK, "/tests")]
    assert sieve().sift(through_image)[0] == []


def test_what_the_instruction_names_is_the_tasks_business(sieve: Callable[..., Sieve]) -> None:
    asked = sieve("Write tests with a conftest.py, and put a wrapper at /usr/local/bin/cat.")
    both = [entry("/app/t/conftest.py"), entry("/usr/local/bin/cat")]
    assert asked.sift(both)[0] == both
    near = sieve("See /usr/local/bin/cat-like and myconftest.py")
    assert near.sift(both)[0] == []


def test_states_add_up_as_if_written_in_one_go() -> None:
    first = EndState(entries=()).then([entry("/a", FOLDER), entry("/a/x", data=b"1"), entry("/a/y"), entry("/b", GONE)])
    second = first.then([entry("/a/x", data=b"2"), entry("/a/y", GONE), entry("/b", FOLDER), entry("/b/z")])
    paths = {one.path: (one.kind, one.data, one.opaque) for one in second.entries}
    assert paths == {
        "/a": (FOLDER, b"", False),
        "/a/x": (FILE, b"2", False),
        "/a/y": (GONE, b"", False),
        "/b": (FOLDER, b"", True),
        "/b/z": (FILE, b"", False),
    }
    third = second.then([entry("/a", GONE)])
    assert [one.path for one in third.entries] == ["/a", "/b", "/b/z"]


def test_a_folder_stands_before_what_it_holds_whatever_the_names() -> None:
    state = EndState(entries=()).then([entry("/a", FOLDER), entry("/a b"), entry("/a-b"), entry("/a/c"), entry("/a.b")])
    places = [one.path for one in state.entries]
    assert places.index("/a") < places.index("/a/c")


def test_a_blob_comes_back_and_times_do_not_enter_the_digest() -> None:
    state = EndState(entries=(entry("/a", data=bytes(range(256)) * 99),))
    later = EndState(entries=(Written(path="/a", kind=FILE, data=state.entries[0].data, modified_ns=5),))
    assert EndState.from_bytes(state.to_bytes()) == state
    assert len(state.to_bytes()) < 4000
    assert state.digest == later.digest
    assert state.digest != EndState(entries=(entry("/a", data=b"other"),)).digest
    for broken in (b"", b"nonsense", state.to_bytes()[:-3]):
        with pytest.raises(InputError, match="end state"):
            EndState.from_bytes(broken)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_policy_cannot_keep_the_grader_busy(sieve: Callable[..., Sieve]) -> None:
    deep = "a/" * 2000 + "a"
    links = [entry(f"/app/{n}", LINK, f"{n + 1}/{deep}") for n in range(200)]
    pipes = [entry(f"/app/pipe{n}", WrittenKind.ODD) for n in range(5_000)]
    started = time.perf_counter()
    kept, left_out = sieve().sift([*links, *pipes])
    assert len(kept) + len(left_out) == len(links) + len(pipes)
    assert all(one.kind is not WrittenKind.ODD for one in kept)
    many = [entry(f"/app/f{n}", FOLDER) for n in range(5_000)]
    EndState(entries=()).then(many).then([entry(one.path, GONE) for one in many])
    assert time.perf_counter() - started < 30


def test_settings_of_tools_are_kept_only_where_the_task_is_about_the_tool() -> None:
    homes = (ROOT_HOME, "/srv/clerk")
    idle = unasked_places(homes, "Sort the numbers in /app/data.")
    assert {f"{ROOT_HOME}/.jq", "/srv/clerk/.gitconfig", "/etc/gitconfig", f"{ROOT_HOME}/.cargo/config.toml"} <= idle
    assert f"{ROOT_HOME}/.bashrc" not in idle
    about = unasked_places(homes, "Commit it to the repository, then use JQ.")
    assert not {f"{ROOT_HOME}/.jq", "/srv/clerk/.gitconfig", "/etc/gitconfig"} & about
    assert f"{ROOT_HOME}/.npmrc" in about
    assert f"{ROOT_HOME}/.gitconfig" in unasked_places(homes, "A digital thing."), "words are whole"


def test_what_is_written_below_such_a_place_is_told(sieve: Callable[[str], Sieve]) -> None:
    entries = [
        entry(f"{ROOT_HOME}/.jq", FOLDER),
        entry(f"{ROOT_HOME}/.jq/x.jq"),
        entry(f"{ROOT_HOME}/notes"),
        entry("/etc/gitconfig"),
    ]
    kept, left_out = sieve("Do it.").sift(entries)
    assert [one.path for one in kept] == [f"{ROOT_HOME}/.jq", f"{ROOT_HOME}/notes"]
    assert {one.path for one in left_out} == {f"{ROOT_HOME}/.jq/x.jq", "/etc/gitconfig"}
    assert len(sieve("Ask jq, commit to git.").sift(entries)[0]) == 4
