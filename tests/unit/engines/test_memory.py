"""Freed tensors leave the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from tests import needs

PROGRAM = textwrap.dedent(
    """
    import ctypes, sys
    import numpy as np
    from flightschool.engines import give_back_memory

    def resident_mb():
        return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

    np.ones(3_900_000)[0]  # a freed block of 31 MB: from now on blocks below it come from the heap
    blocks = [np.ones(250_000) for _ in range(100)]  # 200 MB
    guard = np.ones(250_000)  # a block above them keeps the heap from shrinking by itself
    del blocks
    before = resident_mb()
    give_back_memory()
    print(before, resident_mb(), "torch" in sys.modules)
    """
)


@pytest.mark.skipif(
    sys.platform != "linux", reason=needs.reason("Linux", "the allocator of other systems is asked for nothing")
)
def test_what_was_freed_is_given_back_and_torch_is_not_loaded_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after, torch_loaded = done.stdout.split()
    assert float(before) > 150
    assert float(after) < float(before) - 100
    assert torch_loaded == "False"
