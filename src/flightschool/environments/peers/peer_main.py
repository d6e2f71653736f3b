"""The other side of ``peers``: run by the Python of another ecosystem, imports nothing of this package.

``python peer_main.py ECOSYSTEM`` answers lines ``{"id", "do", …}`` with ``{"id", "ok"}`` or ``{"id", "error"}``.
``describe`` says what there is, ``reset`` begins a session, ``act`` goes on with it, ``close`` ends it. Whatever the
other packages print goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(ecosystem: str) -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print must not look like an answer
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    adapter: Any = importlib.import_module(f"peer_{ecosystem}")
    sessions: dict[int, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"id": asked["id"], "ok": _answer(adapter, sessions, asked)}
        except Exception as error:  # noqa: BLE001  told to the other side, which decides what it means
            answer = {"id": asked["id"], "error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(_plain(answer)) + "\n")
        out.flush()


def _answer(adapter: Any, sessions: dict[int, Any], asked: dict[str, Any]) -> Any:
    do = asked["do"]
    if do == "describe":
        return adapter.describe(asked["source"])
    number = asked["session"]
    if do == "reset":
        sessions[number] = adapter.Session(asked["source"], asked["start"])
        return sessions[number].reset()
    if do == "act":
        return sessions[number].act(asked["tool"], asked["arguments"])
    if do == "close":
        found = sessions.pop(number, None)
        if found is not None:
            found.close()
        return None
    raise ValueError(f"unknown request {do!r}")


def _plain(value: Any) -> Any:
    """JSON of what other packages return: arrays as lists, numbers as numbers, all else as text."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


if __name__ == "__main__":
    main(sys.argv[1])
