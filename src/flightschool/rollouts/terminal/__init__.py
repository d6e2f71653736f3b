"""Episodes in terminal tasks: programs act in one fresh sandbox, and another one grades what they left."""

from flightschool.rollouts.terminal.policies import (
    GRAMMAR,
    Move,
    NothingPolicy,
    ProgramPolicy,
    SolutionPolicy,
    TerminalPolicy,
    parse_policy,
)
from flightschool.rollouts.terminal.records import Episode, NotRun, StageResult, TerminalEpisode
from flightschool.rollouts.terminal.regrading import regrade
from flightschool.rollouts.terminal.replaying import replay_terminal
from flightschool.rollouts.terminal.runner import TerminalRunner
from flightschool.rollouts.terminal.running import Result, find_tasks, native_provider, run_episodes

__all__ = [
    "GRAMMAR",
    "Episode",
    "Move",
    "NotRun",
    "NothingPolicy",
    "ProgramPolicy",
    "Result",
    "SolutionPolicy",
    "StageResult",
    "TerminalEpisode",
    "TerminalPolicy",
    "TerminalRunner",
    "find_tasks",
    "native_provider",
    "parse_policy",
    "regrade",
    "replay_terminal",
    "run_episodes",
]
