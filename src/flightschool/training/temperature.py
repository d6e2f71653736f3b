"""The sampling temperature of a run: it rises as the policy succeeds.

A small model may solve half of its tasks greedily and none when it is sampled at temperature 1. Its first groups then
carry no signal, and the run waits for chance. Sampled below 1 the model succeeds now and then, and there is something
to learn from; once it mostly succeeds there, a little more heat shows what it still gets wrong. A fixed schedule
heats a policy that has not learned anything yet back into noise (docs/experiments.md), so success leads:

    s ← (s + success of the step) / 2
    T ← min(T + rise, last)   if s ≥ 0.3,      T ← max(T − rise, first)   if s < 0.1,      T otherwise

Nothing becomes inexact: every span records the temperature it was sampled under, and the trainer scores under the same.

By hand: first = 0.5, last = 1, rise = 0.1. Steps with success 0.8, 0.8, 0, 0, 0, 0 have s = 0.8, 0.8, 0.4, 0.2, 0.1,
0.05, so T = 0.6, 0.7, 0.8, 0.8, 0.8, 0.7.
"""

from __future__ import annotations

from flightschool.training.settings import TrainingSettings

__all__ = ["Temperature"]

RISES_FROM = 0.3
FALLS_BELOW = 0.1


class Temperature:
    """State of one run.

    Args:
        settings: of the run.
        value: where an earlier incarnation had got; None at the start of a run.
    """

    def __init__(self, settings: TrainingSettings, value: float | None = None) -> None:
        self._first, self._last = settings.first_temperature, settings.temperature
        self._rise = settings.temperature_rise
        self._success: float | None = None
        self.value = self._first if value is None else value
        """Temperature of groups that are admitted now."""

    def step(self, success: float) -> None:
        """Move on after an optimizer step.

        Args:
            success: share of successful attempts in the groups consumed since the step before.
        """
        self._success = success if self._success is None else (self._success + success) / 2
        if self._success >= RISES_FROM:
            self.value = min(self.value + self._rise, self._last)
        elif self._success < FALLS_BELOW:
            self.value = max(self.value - self._rise, self._first)
