"""The sample tasks are tasks: laid out by their plans, they are unsolved as they are and solved by their solutions.

There is no sandbox in this room: absolute paths are rewritten to lie below the test's own folder, and only what the
samples themselves hold is run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import needs

from flightschool.environments.terminal import (
    BuildPlan,
    CopyStep,
    Placement,
    RewardNumber,
    RewardReading,
    TerminalTask,
    WorkdirStep,
    copy_targets,
    plan_build,
    read_folder,
    read_reward,
)

Sample = Callable[[str], Path]

_ABSOLUTE = re.compile(r"(?<![\w./-])/(?=(?:app|srv|tests|solution|logs)(?:[/\s\"')]|$))")


class Tree:
    """A folder that stands for ``/``."""

    def __init__(self, root: Path, task: TerminalTask, plan: BuildPlan) -> None:
        self.root = root
        self.task = task
        self.env = {name: self.inside(value) for name, value in plan.env.items()}
        context = Path(task.folder) / task.environment_dir
        for step in plan.steps:
            if isinstance(step, WorkdirStep):
                self.path(step.path).mkdir(parents=True, exist_ok=True)
            elif isinstance(step, CopyStep):
                for source, item, target in copy_targets(step, lambda path: self.path(path).is_dir()):
                    assert item is not None or source.content is not None
                    self.lay(context / item.path if item else None, self.path(target), source.content or "")

    def inside(self, text: str) -> str:
        return _ABSOLUTE.sub(lambda _: f"{self.root}/", text)

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def lay(self, source: Path | None, target: Path, content: str = "") -> None:
        if source is not None and source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.inside(source.read_text(encoding="utf-8") if source else content), encoding="utf-8")

    def run(self, placements: tuple[Placement, ...], command: tuple[str, ...]) -> None:
        for placement in placements:
            source = Path(self.task.folder) / placement.source
            for file in [source] if source.is_file() else source.rglob("*"):
                self.lay(file, self.path(placement.target) / file.relative_to(source))
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        words = [self.inside(word) for word in command]
        subprocess.run(words, env={"PATH": path, **self.env}, cwd=self.root, check=True, capture_output=True)

    def judged(self) -> RewardReading:
        stage = self.task.stages[0]
        self.run(stage.tests, stage.test_command)
        logs = self.path("/logs/verifier")
        return read_reward({file.name: file.read_bytes() for file in logs.iterdir()})


@pytest.mark.parametrize(
    ("name", "programs"),
    [
        ("awk_sum", ("bash", "awk")),
        ("perl_words", ("bash", "perl")),
        ("node_keys", ("bash", "node")),
        ("python_fix", ("bash", "sed")),
    ],
)
def test_a_sample_is_unsolved_and_its_solution_solves_it(
    sample: Sample, tmp_path: Path, name: str, programs: tuple[str, ...]
) -> None:
    needs.programs(*programs, path=None)
    task = read_folder(sample(name))
    idle = Tree(tmp_path / "idle", task, plan_build(task)).judged()
    assert isinstance(idle, RewardNumber)
    assert idle.value == 0.0
    solved = Tree(tmp_path / "solved", task, plan_build(task))
    solved.run(task.solution, task.oracle)
    verdict = solved.judged()
    assert isinstance(verdict, RewardNumber)
    assert verdict.value == 1.0
