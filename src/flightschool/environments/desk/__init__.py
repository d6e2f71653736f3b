"""The worked domain: the maintenance desk of a plant. It and its traces are our own, made for this project."""

from flightschool.environments.desk.environment import TASKS_PER_FAMILY, DeskEnvironment, build_environment
from flightschool.environments.desk.world import DeskWorld

__all__ = ["TASKS_PER_FAMILY", "DeskEnvironment", "DeskWorld", "build_environment"]
