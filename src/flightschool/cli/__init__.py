"""The command line: one file a verb group; ``main`` is the entry point. The contract stands in ``docs/cli.md``."""

from flightschool.cli.main import build_app, command_tree, main

__all__ = ["build_app", "command_tree", "main"]
