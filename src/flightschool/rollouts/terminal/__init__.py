"""Episodes in terminal tasks: programs and models act in one fresh sandbox, and another one grades what they left."""

from flightschool.rollouts.terminal.conditions import CONDITIONS, GradingCondition, condition_of
from flightschool.rollouts.terminal.measuring import FolderRunner, ProgramSeat, open_folder_runner
from flightschool.rollouts.terminal.own_verdict import OwnVerdict, folder_judging
from flightschool.rollouts.terminal.policies import (
    Move,
    NothingPolicy,
    ProgramPolicy,
    SolutionPolicy,
    TerminalPolicy,
)
from flightschool.rollouts.terminal.records import Episode, NotRun, StageResult, TerminalEpisode
from flightschool.rollouts.terminal.references import GRAMMAR, parse_policy
from flightschool.rollouts.terminal.regrading import regrade
from flightschool.rollouts.terminal.replaying import replay_terminal
from flightschool.rollouts.terminal.runner import TerminalRunner
from flightschool.rollouts.terminal.running import Result, find_tasks, native_provider, run_episodes
from flightschool.rollouts.terminal.shell import SHELL_TOOL, ShellPolicy

__all__ = [
    "CONDITIONS",
    "GRAMMAR",
    "SHELL_TOOL",
    "Episode",
    "FolderRunner",
    "GradingCondition",
    "Move",
    "NotRun",
    "NothingPolicy",
    "OwnVerdict",
    "ProgramPolicy",
    "ProgramSeat",
    "Result",
    "ShellPolicy",
    "SolutionPolicy",
    "StageResult",
    "TerminalEpisode",
    "TerminalPolicy",
    "TerminalRunner",
    "condition_of",
    "find_tasks",
    "folder_judging",
    "native_provider",
    "open_folder_runner",
    "parse_policy",
    "regrade",
    "replay_terminal",
    "run_episodes",
]
