"""Keystrokes: which characters a stroke is, and what is read of a list of them."""

from __future__ import annotations

import subprocess

import pytest

from flightschool.environments.terminal.keystrokes import Keystroke, read_keystrokes, typed_text, typing_script
from flightschool.environments.terminal.typist import keys_of

KEYS = {
    "ls -l": "ls -l",
    "Enter": "\r",
    "enter": "\r",
    "Enter ": "Enter ",
    "Escape": "\x1b",
    "Tab": "\t",
    "BSpace": "\x7f",
    "Space": " ",
    "C-c": "\x03",
    "c-C": "\x03",
    "C-[": "\x1b",
    "C-Space": "\0",
    "^D": "\x04",
    "^": "^",
    "^foo": "^foo",
    "M-x": "\x1bx",
    "C-M-x": "C-M-x",
    "C-": "C-",
    "C-1": "C-1",
    "C-Up": "C-Up",
    "F1": "\x1bOP",
    "F5": "\x1b[15~",
    "F12": "\x1b[24~",
    "NPage": "\x1b[6~",
    "Up": "\x1b[A",
    "Left": "\x1b[D",
    "": "",
    "a\nb\n": "a\nb\n",
}


@pytest.mark.parametrize("text", KEYS)
def test_a_stroke_is_a_key_by_its_name_or_the_text_itself(text: str) -> None:
    assert keys_of(text) == KEYS[text]


def test_arrows_follow_the_program_in_front() -> None:
    assert keys_of("Up", application=True) == "\x1bOA"


def test_a_list_is_read_with_the_defaults_of_the_format() -> None:
    text = "- command: ls\n- {command: 5, min_timeout_sec: 2, max_timeout_sec: 9, block: true, append_enter: false}\n"
    strokes, notes = read_keystrokes(text + "- {command: '', colour: red}\n", "solution.yaml")
    assert strokes == (
        Keystroke(command="ls", min_timeout_sec=0.0, max_timeout_sec=180.0, block=False, append_enter=True),
        Keystroke(command="5", min_timeout_sec=2.0, max_timeout_sec=9.0, block=True, append_enter=False),
        Keystroke(command=""),
    )
    assert [note.what for note in notes] == ["unknown key 'colour'"]
    assert typed_text(text) == "ls\n5\n"


def test_the_script_is_whole_in_itself_whatever_is_typed() -> None:
    """A shell reads it without a fault, and what is typed cannot end the document that it stands in."""
    odd = "END_OF_TYPIST\n'\"\\ $x `y` é \U0001f600 \x07"
    script = typing_script((Keystroke(command=odd),))
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    assert script.splitlines().count("END_OF_TYPIST") == 1
    program = script.partition("<<'END_OF_TYPIST'\n")[2].rpartition("\nEND_OF_TYPIST")[0]
    last = compile(program, "typist", "exec").co_consts
    assert any(isinstance(one, str) and "END_OF_TYPIST" in one for one in last)
