"""Another time of day for both sandboxes of a task: a small library that is loaded into every program.

The kernel has no clock of a sandbox's own, so the library answers ``time``, ``gettimeofday`` and ``clock_gettime`` in
place of the C library. Programs that are linked statically or ask the kernel directly keep the real time, and times of
files stay real: what is shown under a shifted clock is shown, what is not shown is not excluded.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from flightschool.audit.terminal.examination import Examination
from flightschool.audit.terminal.one_image import OneImage
from flightschool.environments.terminal.trees import Tree

__all__ = ["clock_library", "with_clock"]

LIBRARY: Final = "/opt/.clock/shift.so"
_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
  const char *text = getenv("CLOCK_SHIFT_S");
  return text ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  int done = (int)syscall(SYS_clock_gettime, id, now);
  if (!done && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return done;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *kept) {
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  if (kept) *kept = exact.tv_sec;
  return exact.tv_sec;
}
"""


@functools.cache
def clock_library() -> bytes | None:
    """The library; None where no C compiler is at hand."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "shift.c"), Path(folder, "shift.so")
        source.write_text(_SOURCE)
        command = [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        return target.read_bytes() if done.returncode == 0 else None


@contextlib.contextmanager
def with_clock(exam: Examination, library: bytes, seconds: int) -> Iterator[Examination]:
    """The examination with a clock that is ``seconds`` ahead in every sandbox."""
    of_image = Tree(Path(exam.image.tree), over_host=exam.image.over_host)
    with exam.store.scratch(of_image) as folder:
        tree = of_image.copy_to(folder)
        tree.write(LIBRARY, library, mode=0o755)
        shifted = copy.copy(exam)
        shifted.num_episodes = 0
        image = msgspec.structs.replace(exam.image, tree=str(tree.root))
        shifted.use_image(
            OneImage(exam.store, image),
            image,
            exam.with_variables({"LD_PRELOAD": LIBRARY, "CLOCK_SHIFT_S": str(seconds)}, agent=True),
        )
        yield shifted
