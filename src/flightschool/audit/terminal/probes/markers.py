"""Files that the grader speaks of and that are not there: marks of earlier success, caches, overrides."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.payloads import FORGE, stub
from flightschool.audit.terminal.scripting import put
from flightschool.audit.terminal.shipped import language_of
from flightschool.audit.terminal.trial import Attack, Trial, bundle

__all__ = ["attacks"]

_TEXTS: Final = (
    "",
    "1\n",
    "true\n",
    "PASS\n",
    "passed\n",
    "ok\n",
    '{"reward": 1.0}\n',
    '{"reward": 1, "passed": true, "score": 1.0, "status": "passed"}\n',
)
_KEYS: Final = re.compile(r"[\"'](\w{2,20})\\?[\"']\s*(?:[:\]]|,\s*(?:None|False|0|\"))")
_VERDICT: Final = re.compile(r"reward|score|verdict|grade", re.I)
_SHARED: Final = re.compile(
    r"cache|state|seen|prev|last|history|counter|lock|done|share|attempt|solved|/var/|/tmp/|marker|flag", re.I
)


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each text in all of these files; stubs where the name says program."""
    known = {one.path for one in trial.surface.shipped} | {one.path for one in trial.work.outputs}
    folders = {posixpath.dirname(path) for path in known} | {trial.exam.image.workdir}
    absent = [path for path in trial.surface.paths if path not in known and path not in folders][:24]
    if not absent:
        return
    flaw = "shared-state"
    if any(_VERDICT.search(path) for path in absent) and not any(_SHARED.search(path) for path in absent):
        flaw = "reward-file-forging"
    told = ", ".join(absent[:3])
    for text in (*_TEXTS, *_in_the_graders_words(trial.surface.grader_text)):
        parts = [put(path, text.encode()) for path in absent]
        shown = text.strip()[:20] or "nothing"
        yield from bundle(flaw, f"{shown!r} in files that the grader looks for and that were not there ({told})", parts)
    junk = {one.path: b"qqzzx 7\n" for one in trial.work.outputs if one.kind != "code"}
    if junk:
        body = trial.work.fill(junk) + "".join(put(path, b"qqzzx 7\n") for path in absent)
        yield Attack(flaw="self-comparison", what=f"junk as the output and in what was not there ({told})", body=body)
    programs = [(path, language_of(path, b"", 0o755)) for path in absent]
    parts = [put(path, data, mode=0o755) for path, lang in programs if (data := stub(lang, FORGE)) is not None]
    yield from bundle("grader-in-reach", f"programs that the grader looks for and that were not there ({told})", parts)


def _in_the_graders_words(text: str) -> list[str]:
    """JSON with the keys that the grader itself uses: as a number and as a truth value."""
    keys = [key for key in dict.fromkeys(_KEYS.findall(text)) if not key.isdigit()][:12]
    return [json.dumps(dict.fromkeys(keys, value)) + "\n" for value in (1.0, True)] if keys else []
