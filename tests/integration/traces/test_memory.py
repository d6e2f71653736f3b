"""A large file is imported in memory that does not grow with it (minutes long; run with ``-m slow``)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SIZE = 200 << 20
BOUND_KIB = 200 << 10
"""Of the whole process: Python, the package, and one piece of everything."""

IMPORT = """
import resource, sys
from pathlib import Path
from flightschool.store import Workspace
from flightschool.traces import EpisodeReader, Redactor, StoredTraces, save_episodes
space = Workspace.create(Path(sys.argv[2]))
reader = EpisodeReader(Path(sys.argv[1]))
record = save_episodes(space.store, "big", Redactor(b"k" * 32).episodes(reader), lambda: reader.format)
assert sum(1 for _ in StoredTraces(space.store, "big")) == record.num_episodes
print(record.num_episodes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def chat(number: int) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": json.dumps({"n": number})}}
    rows = [{"id": f"row-{number}-{row}", "mail": f"user{row}@example.org", "text": "word " * 20} for row in range(40)]
    messages = [
        {"role": "user", "content": f"Look up {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps(rows)},
    ]
    return json.dumps({"messages": messages}).encode()


@pytest.mark.parametrize("layout", ["lines", "one array"])
def test_peak_memory_is_bounded(layout: str, tmp_path: Path) -> None:
    size = SIZE if layout == "lines" else SIZE // 4
    path = tmp_path / "big.jsonl"
    written = number = 0
    with path.open("wb") as file:
        file.write(b"[" if layout == "one array" else b"")
        while written < size:
            file.write((b",\n" if layout == "one array" else b"\n") if number else b"")
            written += file.write(chat(number))
            number += 1
        file.write(b"]" if layout == "one array" else b"\n")
    command = [sys.executable, "-c", IMPORT, str(path), str(tmp_path / "space")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    num_episodes, peak_kib = map(int, done.stdout.split())
    assert num_episodes == number
    assert peak_kib < BOUND_KIB
