"""Scripted episodes beside their physical reference."""

from __future__ import annotations

import pytest

from flightschool.bench import bench_episodes
from flightschool.errors import InputError


def test_episodes_succeed_and_are_set_beside_the_reference() -> None:
    measured = bench_episodes(40)
    assert measured.success == 1.0
    assert measured.num_episodes == 40
    assert measured.checks_per_episode >= 1
    assert 0 < measured.cpu_ms_best <= measured.cpu_ms
    assert measured.reference_ms > 0
    assert measured.ratio > 1  # an episode does what the reference does, and more
    (target,) = measured.targets
    assert (target.name, target.limit) == ("cpu_ms_best", 2.0)
    assert target.met is (measured.cpu_ms_best <= 2.0)


def test_too_few_episodes_are_refused() -> None:
    with pytest.raises(InputError, match="4 episodes"):
        bench_episodes(4)
