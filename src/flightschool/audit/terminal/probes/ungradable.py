"""Output that no one can grade: it must count as wrong, neither as right nor as nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.probes.contents import filled
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]

DEPTH: Final = 50_000
LARGE: Final = 16_000_000


def attacks(trial: Trial) -> Iterator[Attack]:
    """Broken, undecodable, deep, long and misplaced."""
    if not trial.work.outputs:
        return
    flaw = "unparsable-passes"
    yield filled(trial, flaw, "broken JSON", lambda _: b'{"value": [1, 2\n')
    yield filled(trial, flaw, "bytes that are no UTF-8", lambda _: b"\xff\xfe\x80\x81 \xc3\x28\n")
    yield filled(trial, flaw, "NUL bytes", lambda _: b"\0" * 64)
    lines: dict[str, list[str]] = {"deep": [], "large": [], "folder": []}
    for one in trial.work.outputs[:3]:
        path, above = (
            shlex.quote(one.path),
            f'mkdir -p "$(dirname {shlex.quote(one.path)})"; rm -rf {shlex.quote(one.path)}',
        )
        lines["deep"].append(f"{above}; head -c {DEPTH} /dev/zero | tr '\\0' '[' > {path}")
        lines["large"].append(f"{above}; head -c {LARGE} /dev/zero | tr '\\0' '7' > {path}")
        lines["folder"].append(f"{above}; mkdir -p {path}")
    yield Attack(flaw=flaw, what=f"JSON {DEPTH} deep as the output", body="\n".join(lines["deep"]), escapes=True)
    yield Attack(flaw=flaw, what=f"{LARGE} bytes as the output", body="\n".join(lines["large"][:1]))
    yield Attack(flaw=flaw, what="a folder in the place of the output", body="\n".join(lines["folder"]), escapes=True)
