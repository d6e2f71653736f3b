"""A run has one process, and the lock goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flightschool.errors import InputError
from flightschool.training.run_lock import held_run, refuse_held

HOLD = """
import subprocess, sys, time
from pathlib import Path
from flightschool.training.run_lock import held_run
with held_run(Path(sys.argv[1])):
    if sys.argv[2] == "fork":
        import os
        child = os.fork()
        if child == 0:
            time.sleep(60)
    else:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False).pid
    print(child, flush=True)
    time.sleep(60)
"""


def test_a_second_holder_is_told_who_holds_the_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "june"
    with held_run(run_dir):
        with pytest.raises(InputError, match=f"run 'june' is being trained by process {os.getpid()}") as told:
            held_run(run_dir).__enter__()
        assert told.value.exit_code == 2
        assert told.value.expected == "one process a run"
        assert "--resume" in told.value.mend
        with pytest.raises(InputError, match=f"process {os.getpid()}"):
            refuse_held(run_dir)
        with held_run(tmp_path / "july"):  # another run is another lock
            pass
    refuse_held(run_dir)  # it was let go
    with held_run(run_dir):
        pass
    refuse_held(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("way", ["fork", "exec"])
def test_the_lock_goes_with_its_process_though_a_child_lives_on(tmp_path: Path, way: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), way], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(InputError, match=f"process {holder.pid}"), held_run(tmp_path):
            pass
        holder.kill()
        holder.wait(10)
        os.kill(child, 0)  # it lives
        end = time.monotonic() + 2  # a fork lets go as soon as it runs
        while time.monotonic() < end:
            try:
                with held_run(tmp_path):
                    return
            except InputError:
                time.sleep(0.01)
        pytest.fail("a child holds the lock")
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()
