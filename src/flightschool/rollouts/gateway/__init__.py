"""The gateway: programs of other people's making are trained unchanged.

An OpenAI-compatible server on loopback stands before the attempt's own session and tools; ``ProgramHarness`` starts a
program per attempt and gives it the address. Only the session writes spans, so whatever the program is, what trains
is what was sampled.
"""

from flightschool.rollouts.gateway.gateway import Gateway
from flightschool.rollouts.gateway.program import ProgramHarness
from flightschool.rollouts.gateway.seat import Seat
from flightschool.rollouts.gateway.server import Limits

__all__ = ["Gateway", "Limits", "ProgramHarness", "Seat"]
