"""What an author should change, by what a probe found.

Proposals, not rewrites: the checks of an environment are code or data of its author.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["mend_of"]

_MENDS: Mapping[str, str] = {
    "oracle": "reference solution and checks contradict one another: correct whichever is wrong",
    "leak": "take the value out of what the agent is shown; let it be read with a tool",
    "noop": "add a functional check on something that only the work brings about",
    "stop": "add a functional check on something that only the work brings about",
    "decline-only": "demand the read that justifies declining, before it (rule = 'calls' with before)",
    "random": "check the end state itself, and forbid what else may change (rule = 'diff')",
    "junk": "check values, not presence; forbid what else may change (rule = 'diff')",
    "constant": "tie the checks to values of this task that must be read",
    "mutants": "name every row and argument that must be right, and forbid what else may change (rule = 'diff')",
    "numbers": "compare numbers within declared bounds, and refuse in the tool's schema what is no number of its range",
    "answers": "expect exactly the right items (rule = 'answer_set', 'answer_number', which = 'only')",
    "judge": "put a functional check beside the judge, or choose a judge that follows its form",
    "ungradable": "make the tools answer with an error, and the checks with a no, whatever the policy sends",
    "carry-over": "give every attempt a copy of the initial state; keep nothing in module globals",
    "equivalents": "loosen the check: it refuses work that reaches the same state in another way",
    "flake": "remove chance, clocks and unordered output from tools and checks",
    "regrade": "remove what the verdict depends on beside the evidence: time zone, locale, state of the process",
    "environment.ceiling": "balance the strata, so that no habit of calls pays at tasks of another kind",
}


def mend_of(probe: str) -> str:
    """The proposal for findings of a probe; empty where there is none."""
    return _MENDS.get(probe, "")
