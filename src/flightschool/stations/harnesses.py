"""What drives the model through a task: the built-in harness, or the program that ``[harness]`` names."""

from __future__ import annotations

from flightschool.protocols import Harness
from flightschool.rollouts import ToolCallingHarness
from flightschool.rollouts.gateway import ProgramHarness
from flightschool.stations.settings import HarnessTable

__all__ = ["make_harness"]


def make_harness(table: HarnessTable) -> Harness:
    """The harness of a job.

    Raises:
        ConfigError: its program, or the folder to start it in, does not exist.
    """
    if table.command is None:
        return ToolCallingHarness()
    return ProgramHarness(table.command, timeout_s=table.timeout_s, directory=table.directory)
