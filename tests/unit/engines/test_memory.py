"""Freed tensors leave the process."""

from __future__ import annotations

import platform
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


KEPT = textwrap.dedent(
    """
    import resource
    import numpy as np
    from flightschool.engines.memory import keep_freed_memory, trim

    def faults_of_a_pass():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for size in (40_000_000, 3_000_000):  # 40 MB a block, and 3 MB
            blocks = [np.ones(size // 8) for _ in range(5)]
            del blocks
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults_of_a_pass()
    usual = faults_of_a_pass()
    keep_freed_memory(always=False)
    faults_of_a_pass()
    kept = faults_of_a_pass()
    trim()
    trimmed = faults_of_a_pass()
    keep_freed_memory(always=True)
    trim()
    print(usual, kept, trimmed, faults_of_a_pass())
    """
)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc",
    reason=needs.reason("glibc", "other allocators are asked for nothing"),
)
def test_what_is_freed_is_kept_until_it_is_trimmed() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    usual, kept, after_trim, kept_always = (int(number) for number in done.stdout.split())
    assert usual > 2_000
    assert kept < usual / 50
    assert kept_always < usual / 50
    assert after_trim > 1_000


@pytest.mark.skipif(
    sys.platform != "linux", reason=needs.reason("Linux", "the allocator of other systems is asked for nothing")
)
def test_what_was_freed_is_given_back_and_torch_is_not_loaded_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after, torch_loaded = done.stdout.split()
    assert float(before) > 150
    assert float(after) < float(before) - 100
    assert torch_loaded == "False"
