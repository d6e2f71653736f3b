"""Perturbation: seeded, declarative faults at the tool boundary, labelled with a truth that the policy never sees."""

from flightschool.perturbation.faults import FAULT_KINDS, TIMEOUT_MS
from flightschool.perturbation.profiles import BUILT_IN, FaultProfile, FaultRule, Window, profile
from flightschool.perturbation.weather import Hit, SeededWeather

__all__ = [
    "BUILT_IN",
    "FAULT_KINDS",
    "TIMEOUT_MS",
    "FaultProfile",
    "FaultRule",
    "Hit",
    "SeededWeather",
    "Window",
    "profile",
]
