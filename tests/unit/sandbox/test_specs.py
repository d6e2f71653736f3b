from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import needs

import flightschool.sandbox.node as far_side
from flightschool.errors import InfrastructureError, InputError
from flightschool.sandbox import (
    ExecResult,
    ImageTree,
    Limits,
    Mechanism,
    NativeProvider,
    ReadOnlyMount,
    SandboxSpec,
    Stopped,
    best_provider,
    chain,
)
from flightschool.sandbox.enforcement import native_enforcement
from flightschool.sandbox.launching import plan_of
from flightschool.sandbox.node.plan import DEFENCES, Plan


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"limits": Limits(pids=1)}, "limits.pids"),
        ({"limits": Limits(memory_bytes=0)}, "limits.memory_bytes"),
        ({"limits": Limits(wall_s=float("nan"))}, "limits.wall_s"),
        ({"uid": -1}, "uid"),
        ({"gid": 70000}, "gid"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/a/../../b"}, "workdir"),
        ({"mounts": (ReadOnlyMount(source="/", target="/x"),)}, "mounts"),
        ({"mounts": (ReadOnlyMount(source="/usr", target="/"),)}, "mounts"),
        ({"mounts": (ReadOnlyMount(source="/no/such/place", target="/x"),)}, "/no/such/place"),
        ({"root": ImageTree(path="/")}, "/"),
        ({"root": ImageTree(path="/no/such/tree")}, "/no/such/tree"),
        ({"hostname": "a/b"}, "hostname"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": "c\0"}}, "env"),
    ],
)
def test_a_wrong_spec_is_one_error_that_says_where(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as error:
        SandboxSpec(**fields)
    assert error.value.where == where
    assert error.value.mend


def test_a_tree_whose_path_an_overlay_cannot_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    with pytest.raises(InputError, match="overlay"):
        SandboxSpec(root=ImageTree(path=str(tmp_path / "a:b")))


def test_a_spec_reaches_the_far_side_whole(tmp_path: Path) -> None:
    mounts = (ReadOnlyMount(source=str(tmp_path), target="/in"),)
    spec = SandboxSpec(root=ImageTree(path=str(tmp_path)), mounts=mounts, uid=7, limits=Limits(pids=9))
    plan = Plan.of(plan_of(spec, "single", ["pid"]))
    assert (plan.tree, plan.binds, plan.uid, plan.pids) == (str(tmp_path), [[str(tmp_path), "/in"]], 7, 9)
    assert not plan.has("pid")
    assert plan.has("seccomp")
    for name in {*Limits.__struct_fields__} - {"cpus"}:  # kept from outside, or not at all
        assert getattr(plan, name) == getattr(spec.limits, name)


def test_every_limit_has_an_honest_line_and_weakness_shows() -> None:
    lines = native_enforcement(SandboxSpec(), "range", ())
    assert {line.limit for line in lines} == {*Limits.__struct_fields__, "network", "ids"}
    assert str(128 * (8192 << 20)) in next(line.bound for line in lines if line.limit == "memory_bytes")
    weak = native_enforcement(SandboxSpec(), "range", ["seccomp"])
    assert weak[-1].limit == "WEAKENED"
    assert "seccomp" in weak[-1].bound


@pytest.mark.parametrize("arguments", [{"mode": "none"}, {"without": ["wings"]}])
def test_unknown_modes_and_defences_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="without"):
        NativeProvider(**arguments)


def test_root_is_never_mapped_to_itself() -> None:
    needs.root("nobody else could be mapped so")
    with pytest.raises(InputError, match="host's root"):
        NativeProvider(mode="single")


def test_results_tell_time_outs_from_failures() -> None:
    assert ExecResult(exit_code=0).ok
    assert not ExecResult(exit_code=1).ok
    late = ExecResult(exit_code=None, signal=9, stopped=Stopped.TIMEOUT)
    assert late.timed_out
    assert not late.ok
    assert not ExecResult(exit_code=0, stopped=Stopped.MEMORY).ok


def test_the_chain_refuses_with_what_each_said_and_what_to_enable(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise InputError("engine not found", mend="install an engine")

    class Broken:
        async def try_out(self) -> Mechanism:
            return Mechanism(name="broken", works=False, found="mount refused", mend="allow mounts")

        async def aclose(self) -> None:
            return

    monkeypatch.setattr(chain, "MECHANISMS", {"absent": absent, "broken": Broken})
    with pytest.raises(InfrastructureError) as error:
        asyncio.run(best_provider())
    assert "absent: engine not found; broken: mount refused" in error.value.what
    assert error.value.mend == "install an engine; or allow mounts"


def test_the_far_side_needs_the_standard_library_only() -> None:
    """It runs where nothing else is importable, and what it imported would be in every sandbox's memory."""
    folder = Path(far_side.__file__).parent
    foreign = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                ours = name.startswith("flightschool.sandbox.node") or name == "__future__"
                if not ours and name.split(".")[0] not in sys.stdlib_module_names:
                    foreign.add(f"{path.name}: {name}")
    assert not foreign


def test_every_defence_is_asked_for_on_the_far_side() -> None:
    """A name that no code asks for would make a twin that is not weaker."""
    room = Path(far_side.__file__).parents[1]
    text = "".join(path.read_text(encoding="utf-8") for path in room.rglob("*.py") if path.name != "plan.py")
    unused = [name for name in DEFENCES if f'"{name}"' not in text]
    assert not unused
