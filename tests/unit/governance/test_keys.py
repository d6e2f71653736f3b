"""The key ring: outside the workspace, one role, and it remembers looks."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flightschool.errors import GateError, InputError, NotFoundError, StoreError
from flightschool.governance import KeyRing


def test_a_key_is_kept_for_its_role_alone(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys")
    made = ring.create("s-holdout", budget=3)
    assert ring.take(made.id, role="evaluation") == made
    assert len(made.secret) == 32
    assert ring.create("s-holdout", budget=3).secret != made.secret
    with pytest.raises(GateError, match="not held by role 'training'"):
        ring.take(made.id, role="training")
    path = tmp_path / "keys" / f"{made.id}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_keys_never_lie_in_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in the workspace"):
        KeyRing(tmp_path / "space" / "keys", outside=tmp_path / "space")
    (tmp_path / "space").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "space")
    with pytest.raises(InputError, match="in the workspace"):
        KeyRing(tmp_path / "alias" / "keys", outside=tmp_path / "space")
    KeyRing(tmp_path / "space-keys", outside=tmp_path / "space")


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "named"))
    assert KeyRing().folder == tmp_path / "named"
    monkeypatch.delenv("FLIGHTSCHOOL_KEYS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert KeyRing().folder == tmp_path / "config" / "flightschool" / "keys"


def test_looks_are_remembered_and_never_go_back(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    key = ring.create("s-holdout", budget=3)
    ring.spend(key.id, 2)
    ring.spend(key.id, 1)
    assert ring.take(key.id, role="evaluation").spent == 2


def test_missing_and_damaged_keys_are_told_apart(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    with pytest.raises(NotFoundError, match="is not here"):
        ring.take("0" * 16, role="evaluation")
    with pytest.raises(NotFoundError, match="is not here"):
        ring.take("../../etc/passwd", role="evaluation")
    (tmp_path / ("0" * 16 + ".json")).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        ring.take("0" * 16, role="evaluation")
    with pytest.raises(InputError, match=r"with 0 looks"):
        ring.create("s-holdout", budget=0)
