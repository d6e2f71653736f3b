"""Rollouts: sessions, harnesses, policies and the episode runner.

A runner opens a fresh world for every attempt, lets a harness drive a policy through it, closes both, grades the
end state and returns one ``Attempt``. Only the session writes token spans, so any harness is token-exact.
"""

from flightschool.rollouts.demonstrations import Demonstrations, demonstrate
from flightschool.rollouts.dialect import CompactDialect, MalformedCallError
from flightschool.rollouts.harness import EpisodeEndError, ToolCallingHarness, opening_messages
from flightschool.rollouts.policies import (
    ConstantPolicy,
    EnginePolicy,
    MessagesPolicy,
    NoopPolicy,
    OraclePolicy,
    Policy,
    PolicyEndpoint,
    RandomPolicy,
    ScriptPolicy,
    scripted_turns,
)
from flightschool.rollouts.recital import RecitalPolicy
from flightschool.rollouts.references import GRAMMAR, parse_policy
from flightschool.rollouts.replay import Replay, answer_of, reenact, replay
from flightschool.rollouts.runner import EpisodeRunner, num_prompt_tokens, run_attempts
from flightschool.rollouts.session import Session
from flightschool.rollouts.transcript import CutTurnError, Sampling

__all__ = [
    "GRAMMAR",
    "CompactDialect",
    "ConstantPolicy",
    "CutTurnError",
    "Demonstrations",
    "EnginePolicy",
    "EpisodeEndError",
    "EpisodeRunner",
    "MalformedCallError",
    "MessagesPolicy",
    "NoopPolicy",
    "OraclePolicy",
    "Policy",
    "PolicyEndpoint",
    "RandomPolicy",
    "RecitalPolicy",
    "Replay",
    "Sampling",
    "ScriptPolicy",
    "Session",
    "ToolCallingHarness",
    "answer_of",
    "demonstrate",
    "num_prompt_tokens",
    "opening_messages",
    "parse_policy",
    "reenact",
    "replay",
    "run_attempts",
    "scripted_turns",
]
