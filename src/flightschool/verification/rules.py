"""What each kind of check means: the table of kinds (one small file each under ``kinds``), and how a rule is judged.

A check that cannot be evaluated on the *initial* state either is broken: that is the environment's fault and raises.
A check that fails to evaluate on the end state alone was broken by what the policy left there, and counts as not
passed; otherwise writing data that no query can digest would be a way out of the denominator.
"""

from __future__ import annotations

from flightschool.verification.kinds import KINDS, Finding, expected_values, judge, problem_of
from flightschool.verification.kinds.calls import FAULTS_THAT_TOOK_EFFECT, contains, took_effect

__all__ = [
    "FAULTS_THAT_TOOK_EFFECT",
    "KINDS",
    "Finding",
    "contains",
    "expected_values",
    "judge",
    "problem_of",
    "took_effect",
]
