"""Types a solution that is given as keystrokes into a shell on a terminal of its own, as a person would.

This file runs inside, written out with its own text (``keystrokes.py``), so it imports the standard library only and
nothing newer than Python 3.8 knows. A stroke is text, or the name of one key as tmux names it (``Enter``, ``Escape``,
``C-c``, ``Up``), since that is how the format's own runner sends it. It either *blocks*, until the shell has come
to the end of the line, or is followed by at least its time of waiting.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time
from typing import Any

ROWS, COLUMNS = 40, 160
GAP_S = 0.15
"""After each stroke: an Escape that another key follows at once is read as one with Alt."""
PROMPT_S = 0.2
"""The shell is taken to wait for a line once it has slept this long with nothing in front of it."""
START_S = 10.0
LAST_S = 10.0
"""What the last stroke began may take this long to end."""

_FUNCTIONS = ["\x1bOP", "\x1bOQ", "\x1bOR", "\x1bOS"] + [
    f"\x1b[{number}~" for number in (15, 17, 18, 19, 20, 21, 23, 24)
]
_KEYS = {
    "enter": "\r",
    "kpenter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "btab": "\x1b[Z",
    "space": " ",
    "bspace": "\x7f",
    "home": "\x1b[1~",
    "end": "\x1b[4~",
    "ic": "\x1b[2~",
    "insert": "\x1b[2~",
    "dc": "\x1b[3~",
    "delete": "\x1b[3~",
    "ppage": "\x1b[5~",
    "pageup": "\x1b[5~",
    "pgup": "\x1b[5~",
    "npage": "\x1b[6~",
    "pagedown": "\x1b[6~",
    "pgdn": "\x1b[6~",
}
_KEYS.update({f"f{number}": text for number, text in enumerate(_FUNCTIONS, 1)})
_ARROWS = {"up": "A", "down": "B", "right": "C", "left": "D"}
_ENTERS = "\r\n"
_QUERIES = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c", b"\x1b[0c": b"\x1b[?1;2c"}
"""What programs ask a terminal, and what it answers: where the cursor is, and what it can do."""
_ASKED = re.compile(rb"\x1b\[(?:6n|0?c|\?1[hl])")


def keys_of(text: str, application: bool = False) -> str:
    """The characters of a stroke: of a key if it is the name of one, else the text itself.

    Args:
        application: whether the program in front has asked for the other form of the arrows.
    """
    name = text.lower()
    if name in _KEYS:
        return _KEYS[name]
    if name in _ARROWS:
        return f"\x1b{'O' if application else '['}{_ARROWS[name]}"
    if len(text) == 2 and text[0] == "^":
        return _control(text[1]) or text
    if name[:2] in ("c-", "m-", "s-") and len(text) > 2:
        rest = keys_of(text[2:], application)
        if len(rest) != 1:  # no key that one character stands for: sent as it is written
            return text
        changed = {"c": _control(rest), "m": "\x1b" + rest, "s": rest.upper()}[name[0]]
        return changed or text
    return text


def _control(char: str) -> str:
    if char == "?":
        return "\x7f"
    if char == " ":
        return "\0"
    upper = char.upper()
    return chr(ord(upper) & 0x1F) if "@" <= upper <= "_" else ""


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self) -> None:
        self.application = False
        self.ended = False
        self._left = b""
        shell = shutil.which("bash") or shutil.which("sh") or "/bin/sh"
        self._master, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._pid = os.fork()
        if self._pid == 0:
            os.setsid()
            fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
            for stream in range(3):
                os.dup2(inner, stream)
            os.closerange(3, 256)
            os.environ["TERM"] = "screen"
            os.execl(shell, os.path.basename(shell))  # noqa: PTH119
        os.close(inner)
        os.set_blocking(self._master, False)

    def read(self, patience_s: float) -> None:
        """Take what it shows, for at most so long, and answer what programs ask it."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, patience_s))
        if not ready:
            return
        try:
            shown = os.read(self._master, 1 << 16)
        except OSError:  # the last process on it has gone
            shown = b""
        if not shown:
            self.ended = True
            return
        sys.stdout.buffer.write(shown)
        sys.stdout.buffer.flush()
        text = self._left + shown
        end = 0
        for found in _ASKED.finditer(text):
            end = found.end()
            if found.group().startswith(b"\x1b[?1"):
                self.application = found.group().endswith(b"h")
            else:
                self._write(_QUERIES[found.group()])
        self._left = text[max(end, len(text) - 8) :]

    def type(self, text: str) -> None:
        """Send characters, as fast as they are taken."""
        data = text.encode("utf-8", "surrogateescape")
        while data and not self.ended:
            data = data[self._write(data) :]
            self.read(0.01 if data else 0.0)

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._master, data[:1024])
        except BlockingIOError:
            return 0
        except OSError:
            self.ended = True
            return 0

    def watch(self, until: float) -> None:
        """Read until a time of the clock."""
        while not self.ended and time.monotonic() < until:
            self.read(min(0.05, until - time.monotonic()))

    def settle(self, most_s: float) -> None:
        """Read until the shell waits for a line with nothing in front of it, for at most so long."""
        end = time.monotonic() + most_s
        since = time.monotonic()
        while not self.ended and time.monotonic() < min(end, since + PROMPT_S):
            self.read(0.02)
            if not self._waits():
                since = time.monotonic()

    def _waits(self) -> bool:
        try:
            in_front = os.tcgetpgrp(self._master)
        except OSError:  # no shell has taken it yet
            return False
        return in_front == self._pid and _sleeps(self._pid)


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something; true where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


def play(terminal: Terminal, stroke: dict[str, Any], done: str) -> bool:
    """Type one stroke; False when it blocked for longer than it may.

    Args:
        done: path of a file that the shell makes once it comes to it.
    """
    began = time.monotonic()
    keys = keys_of(stroke["command"], terminal.application) + ("\r" if stroke["append_enter"] else "")
    if not stroke["block"] or not keys.endswith(("\r", "\n")):
        terminal.type(keys)
        terminal.watch(max(began + stroke["min_timeout_sec"], time.monotonic() + GAP_S))
        return True
    line = keys.rstrip(_ENTERS)
    terminal.type(f"{line}{_joint(line)}: > {done}\r")
    end = began + stroke["max_timeout_sec"]
    while not os.path.exists(done):  # noqa: PTH110
        if terminal.ended:
            return True
        if time.monotonic() >= end:
            return False
        terminal.read(0.02)
    return True


def _joint(line: str) -> str:
    """What stands between a line and the command after it."""
    if "\n" in line or "\r" in line:  # a document may end with its last line
        return "\r"
    return " " if not line.strip() or line.rstrip().endswith("&") else "; "


def play_all(strokes: list[dict[str, Any]]) -> int:
    """Type all strokes; the exit code."""
    folder = tempfile.mkdtemp(prefix=".typed-", dir="/tmp")
    try:
        terminal = Terminal()
        terminal.settle(START_S)
        for number, stroke in enumerate(strokes):
            if terminal.ended:
                break
            if not play(terminal, stroke, f"{folder}/{number}"):
                limit = stroke["max_timeout_sec"]
                sys.stderr.write(f"keystrokes {number + 1}: {stroke['command'][:200]!r} did not end in {limit:g} s\n")
                return 124
        terminal.settle(LAST_S)
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(text: str) -> None:
    """Type the strokes of a JSON list, and end."""
    sys.exit(play_all(json.loads(text)))
