"""Another time of day in a sandbox: a small library that is loaded into every program.

The kernel has no clock of a sandbox's own, so the library answers ``time``, ``gettimeofday`` and ``clock_gettime`` in
place of the C library. Programs that are linked statically or ask the kernel directly keep the real time, and times of
files stay real: what is shown under a shifted clock is shown, what is not shown is not excluded.
"""

from __future__ import annotations

import base64
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["shifted_by"]

LIBRARY: Final = "/tmp/.clock-shift.so"
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


def shifted_by(seconds: int) -> str:
    """Shell that shifts the clock of whatever the same shell starts next; empty where no C compiler is at hand."""
    library = clock_library()
    if library is None:
        return ""
    coded = base64.b64encode(library).decode()
    return (
        f"[ -e {LIBRARY} ] || echo {coded} | base64 -d > {LIBRARY}\n"
        f"export LD_PRELOAD={LIBRARY} CLOCK_SHIFT_S={seconds}\n"
    )
