from __future__ import annotations

import os
import threading
from multiprocessing import Pipe
from pathlib import Path

import pytest
from tests.integration.training.fake_trainer import ListTrainer

from flightschool.training import trainer_process
from flightschool.training.folders import shared_path
from flightschool.training.messages import Ready, Start, TrainerSpec, decode_reply, encode


@pytest.mark.parametrize("suffix", [".weights", ".published", ".meeting", ".handles"])
def test_a_trainer_removes_what_it_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(trainer_process, "build_torch_trainer", ListTrainer)
    weights, next_one = shared_path(tmp_path, 1), shared_path(tmp_path, 11)
    spec = TrainerSpec(run="r", incarnation=1, step=0, model="", run_dir="", weights=str(weights), settings="{}")
    ours, theirs = Pipe(duplex=True)
    thread = threading.Thread(target=trainer_process.main, args=([str(os.dup(theirs.fileno())), str(os.getppid())],))
    thread.start()
    ours.send_bytes(encode(Start(spec=spec)))
    assert isinstance(decode_reply(ours.recv_bytes()), Ready)
    path = weights.with_suffix(suffix)
    if suffix == ".published":
        path.mkdir()
        (path / "1-0.safetensors").write_bytes(b"x")
    else:
        path.write_bytes(b"x")
    next_one.write_bytes(b"x")  # of the run's next incarnation: not ours to remove
    try:
        theirs.close()
        ours.close()
        thread.join(10)
        assert not path.exists()
        assert next_one.exists()
    finally:
        next_one.unlink()
