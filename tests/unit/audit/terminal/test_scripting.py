"""Programs of evidence: run by a plain shell they leave exactly the bytes that they name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flightschool.audit.terminal.payloads import FORGE, always_equal, introspecting, python_stub, stub
from flightschool.audit.terminal.scripting import by_stage, put, script


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"105\n",
        b"105",
        b'it\'s "$HOME" `x` \\n\n',
        b"\xff\x00\n",
        "ünïcode\n".encode(),
        b"END_OF_FILE\n",
        b"\r\n",
        b"x" * 5000,
    ],
)
def test_put_leaves_the_bytes(data: bytes, tmp_path: Path) -> None:
    place = tmp_path / "a folder" / "it's.txt"
    done = subprocess.run(["/bin/sh", "-c", script(put(str(place), data))], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert place.read_bytes() == data


def test_steps_do_their_own_part(tmp_path: Path) -> None:
    text = by_stage({"one": "echo 1", "two": "echo 2"})
    done = subprocess.run(["/bin/sh", "-c", text], env={"FLIGHTSCHOOL_STEP": "two"}, capture_output=True, check=False)
    assert done.stdout == b"2\n"
    assert by_stage({"": "echo 1"}) == "echo 1"


@pytest.mark.parametrize("language", ["shell", "python", "perl", "awk"])
def test_stubs_run_their_command_and_end_well(language: str, tmp_path: Path) -> None:
    place = tmp_path / "stub"
    place.write_bytes(stub(language, "echo 'a \"b\"'") or b"")
    runner = {"shell": ["sh"], "python": ["python3"], "perl": ["perl"], "awk": ["awk", "-f"]}[language]
    done = subprocess.run([*runner, str(place)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b'a "b"\n')


def test_modules_equal_anything_and_see_what_is_expected() -> None:
    for base in ("object", "int", "str", "list", "dict", "float"):
        scope: dict[str, object] = {"__name__": "made"}
        exec(compile(always_equal(base, ["double"]), "made", "exec"), scope)
        made = scope["double"](3)  # type: ignore[operator]
        assert made == 6
        assert made.__ne__("six") is False
    scope = {"__name__": "made"}
    exec(compile(introspecting(["double"]), "made", "exec"), scope)
    expected = 6
    assert scope["double"](3) == expected  # type: ignore[operator]
    assert b"os.system" in python_stub(f"os.system({FORGE!r})")
