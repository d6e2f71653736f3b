"""The tool boundary: every call of a policy passes here, and nothing else of the world is in its sight."""

from flightschool.tools.boundary import ToolBoundary, render_reply
from flightschool.tools.clock import VirtualClock
from flightschool.tools.schema import json_equal, validate_arguments

__all__ = ["ToolBoundary", "VirtualClock", "json_equal", "render_reply", "validate_arguments"]
