"""A trainer process without torch: its weights are the list of groups that it trained."""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from flightschool.records import WeightsVersion
from flightschool.training.checkpoints import write_manifest
from flightschool.training.folders import durable_folder
from flightschool.training.link import HANG_SIGNAL
from flightschool.training.messages import Accumulated, Manifest, Stepped, StepStats, TrainerSpec, TrainGroup
from flightschool.training.server import serve
from flightschool.training.trainer_process import die_with

SECONDS_A_GROUP = 0.002


class ListTrainer:
    num_parameters = 0

    def __init__(self, spec: TrainerSpec) -> None:
        self._spec = spec
        self._step = spec.step
        self._trained: list[list[object]] = []
        self._pending: list[TrainGroup] = []
        if spec.checkpoint:
            self._trained = json.loads((Path(spec.checkpoint) / "weights.json").read_text())

    def publish(self) -> WeightsVersion:
        return WeightsVersion(run=self._spec.run, incarnation=self._spec.incarnation, step=self._step)

    def accumulate(self, *groups: TrainGroup) -> Accumulated:
        time.sleep(3600 if (Path(self._spec.run_dir) / "hang").exists() else SECONDS_A_GROUP * len(groups))
        self._pending += groups
        return Accumulated(num_forward_tokens=1, num_trained_tokens=1, seconds=SECONDS_A_GROUP)

    def step(self, *, num_flat_members: int = 0) -> Stepped:
        for group in self._pending:
            oldest = min(r.step for m in group.members for s in m.spans for r in s.versions)
            self._trained.append([group.id, self._step, self._step - oldest])
        self._pending = []
        self._step += 1
        return Stepped(version=self.publish(), stats=NO_STATS)

    def save(self, directory: Path, manifest: Manifest) -> None:
        with durable_folder(directory) as fresh:
            (fresh / "weights.json").write_text(json.dumps(self._trained))
            time.sleep(0.003)  # a wide window to be killed in
            write_manifest(fresh, manifest)

    def export(self, directory: Path) -> str:
        with durable_folder(directory) as fresh:
            (fresh / "weights.json").write_text(json.dumps(self._trained))
        return "fake"


NO_STATS = StepStats(
    loss=0.0,
    grad_norm=0.0,
    num_trained_tokens=0,
    num_forward_tokens=0,
    entropy=0.0,
    ess=1.0,
    k1=0.0,
    k3=0.0,
    clip_share=0.0,
    tis_share=0.0,
    max_abs_mismatch=0.0,
    seconds=0.0,
)

if __name__ == "__main__":
    descriptor, parent = (int(argument) for argument in sys.argv[1:])
    die_with(parent)
    faulthandler.register(HANG_SIGNAL, all_threads=True)
    serve(Connection(descriptor), ListTrainer)
