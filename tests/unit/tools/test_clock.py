"""The virtual clock and the latencies that move it."""

from __future__ import annotations

import math
import statistics

import pytest

from flightschool.errors import InputError
from flightschool.records import Latency
from flightschool.tools import VirtualClock
from flightschool.tools.clock import check_latency, sample_latency_ms


def test_the_clock_adds_up_what_it_is_told() -> None:
    clock = VirtualClock()
    clock.advance(20.0)
    clock.advance(0.5)
    assert clock.now_ms == 20.5


@pytest.mark.parametrize("ms", [-1.0, math.nan, math.inf])
def test_the_clock_never_goes_back_or_astray(ms: float) -> None:
    clock = VirtualClock()
    with pytest.raises(InputError, match="cannot advance"):
        clock.advance(ms)
    assert clock.now_ms == 0.0


def test_latency_without_spread_is_its_median() -> None:
    assert sample_latency_ms(Latency(median_ms=80.0), seed=1, index=5) == 80.0


def test_latency_is_lognormal_around_its_median_and_repeats() -> None:
    latency = Latency(median_ms=100.0, sigma=0.5)
    drawn = [sample_latency_ms(latency, 7, index) for index in range(2000)]
    assert drawn == [sample_latency_ms(latency, 7, index) for index in range(2000)]
    assert drawn != [sample_latency_ms(latency, 8, index) for index in range(2000)]
    logs = [math.log(ms / 100.0) for ms in drawn]
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.05)
    assert statistics.stdev(logs) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("latency", [Latency(median_ms=-1.0), Latency(sigma=math.nan), Latency(median_ms=math.inf)])
def test_a_latency_that_is_none_is_refused_by_name(latency: Latency) -> None:
    with pytest.raises(InputError, match="tool 'lookup'"):
        check_latency(latency, "lookup")
