"""``doctor`` tells what was tried, and what it would use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flightschool.sandbox import MECHANISMS

Run = Callable[..., Any]


def test_doctor_tries_every_sandbox_mechanism_and_names_the_best(run: Run, space: Path) -> None:
    found = {check["name"]: check for check in run("doctor", "--json").json["checks"]}
    tried = {name: found[f"sandbox {name}"] for name in MECHANISMS}
    working = [name for name, check in tried.items() if check["state"] == "ok"]
    for name, check in tried.items():
        assert check["found"]
        assert check["mend"] or name in working
    if working:
        assert found["sandbox"]["state"] == "ok"
        assert found["sandbox"]["found"].startswith(working[0])
    else:
        assert found["sandbox"]["state"] == "note"
        assert "none works" in found["sandbox"]["found"]
