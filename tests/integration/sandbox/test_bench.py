"""``bench sandbox``: measured for real, in small; what is not here is null."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import needs

from flightschool.bench import bench_sandbox
from flightschool.bench import sandbox as benching
from flightschool.bench.sandbox_floor import Bubblewrap, floor, runc
from flightschool.cli import main
from flightschool.errors import InfrastructureError
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.helper import SWITCH, compiler

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]
PROMISED = (
    "mechanism floor_ms_p50 start_ms_p50 ratio_to_floor per_s_at_8 exec_ms_p50 live_mib vs_bubblewrap vs_runc"
    " harbor_parse_tasks_per_s light_task_s"
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "QUICK", benching.Sizes(rounds=2, starts=3, many=16, live=3, folders=20, tasks=1))


def test_every_figure_is_there_for_whoever_measures(small: None, native: Place, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)

    def work() -> None:
        measured = bench_sandbox(quick=True, num_episodes=20)
        assert measured.mechanism == native.name
        assert measured.uid == native.user
        assert measured.launcher.startswith("launcher and agent in " + ("C" if native.helped else "Python"))
        assert 0 < measured.exec_ms_p50 < measured.start_ms_p50
        assert 0 < measured.live_mib < 100
        assert (measured.light_task_s is not None) == os.access(sys.executable, os.X_OK)
        assert measured.light_task_s is None or 0 < measured.light_task_s < 100
        assert measured.left_behind == {}
        assert os.sched_getaffinity(0) == before
        if compiler():
            assert measured.floor_ms_p50
            assert measured.ratio_to_floor is not None
            assert measured.ratio_to_floor > 0
            assert measured.floor_per_s_at_8
        assert (measured.python_start_ms_p50 is None) != native.helped
        assert {target.name for target in measured.targets} >= {"per_s_at_8", "exec_ms_p50", "left_behind"}

    with pytest.MonkeyPatch.context() as patch:
        if not native.helped:
            patch.setenv(SWITCH, "off")
        native.run_here(work)


def test_what_is_not_here_is_null(
    small: None, place_as_root: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", "/proc/none")
    monkeypatch.setattr(benching, "runc", lambda _: None)
    monkeypatch.setattr(benching, "bubblewrap", lambda: None)
    code = main(["bench", "sandbox", "--quick", "--json"])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(PROMISED.split()) <= told.keys()
    for name in ("floor_ms_p50", "ratio_to_floor", "python_start_ms_p50", "vs_bubblewrap", "vs_runc", "left_behind"):
        assert told[name] is None, name
    assert "no C compiler" in told["launcher"]
    assert told["start_ms_p50"] > 0
    assert code == (0 if told["met"] else 1)


def test_the_floor_makes_the_same_walls(place_as_root: Place, tmp_path: Path) -> None:
    if compiler() is None:
        needs.skip("a C compiler", "install gcc or clang with this machine's package manager")
    bare = floor(tmp_path, "range")
    assert bare is not None
    try:
        assert 0.05 < bare.once() < 5_000
        assert bare.rate(8, 2) > 0
    finally:
        bare.close()
    (tmp_path / "recipe").write_bytes(b"no recipe")
    broken = type(bare)(tmp_path / "floor", tmp_path / "recipe", "range")
    with pytest.raises(InfrastructureError, match="bare clone failed"):
        broken.once()
    broken.close()


def test_rivals_that_fail_are_told(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError):
        Bubblewrap(shutil.which("false") or "/bin/false").once()
    if os.geteuid() == 0 and (found := runc(tmp_path / "runc")) is not None:
        assert found.once() > 0
        assert not any(path.name.startswith("floor-") for path in (tmp_path / "runc" / "state").iterdir())


def test_without_a_sandbox_it_says_what_each_mechanism_said(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> Any:
        raise InfrastructureError("the kernel refused", where="clone", expected="namespaces", mend="allow them")

    monkeypatch.setattr(NativeProvider, "start", refuse)
    assert main(["bench", "sandbox", "--quick", "--json"]) != 0
    told = json.loads(capsys.readouterr().out)
    assert "bubblewrap" in told["error"]["what"]
