"""No file tells where it was written: no paths of one machine, no registry hosts, no names of tools that wrote it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = frozenset(
    {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".css", ".j2", ".html", ".yml", ".yaml", ".cfg", ""}
)


def _join(*parts: str) -> str:
    return "".join(parts)


FORBIDDEN = {
    # Written in pieces, so that this file does not hold what it forbids.
    "a path of one machine": "|".join(
        (
            rf"(?<![\w.]){_join('/', 'work')}/",
            _join("/", "root/"),
            _join("/", "home") + r"/(?!user\b)[a-z]",
        )
    ),
    "a path outside the repository": re.escape(_join("../", "shared/")),
    "a registry's host": _join("py", r"pi\.org") + "|" + _join("python", "hosted") + "|" + _join("npm", r"js\.com"),
    "a tool's name": _join("cla", "ude") + "|" + _join("chat", "gpt") + "|" + _join("co", r"pilot\b"),
}


def tracked_files() -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        listed = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if not {".venv", ".git"} & set(p.parts)]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def test_no_file_names_a_machine_a_registry_or_its_writer() -> None:
    wrong = []
    for path in tracked_files():
        if path.suffix not in TEXT or path.stat().st_size > 2_000_000:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for what, pattern in FORBIDDEN.items():
            found = re.search(pattern, text, flags=re.IGNORECASE)
            if found:
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {what}: {found.group()!r}")
    assert not wrong, "\n".join(wrong)
