"""What the report says of the reward's terms: whose variance trained the model, and whether a process term misleads,
and how far the voices behind checks agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from flightschool.errors import InputError
from flightschool.records import Attempt
from flightschool.statistics import Interval, process_bias
from flightschool.training import StepProgress
from flightschool.verification import all_votes, vote_words

__all__ = ["term_notes"]

LEAST_SHARE = 0.005


def term_notes(rows: Sequence[StepProgress], attempts: Iterable[Attempt]) -> list[str]:
    """Sentences for the report.

    Args:
        rows: steps of the run.
        attempts: that the run was trained on; those without a reward are left out.
    """
    judged = [attempt for attempt in attempts if attempt.reward is not None]
    return [*_shares(rows), *_bias(judged), *_voters(judged)]


def _voters(attempts: Sequence[Attempt]) -> list[str]:
    """How far panels and judges agreed; a check that one voice decides has nothing to tell."""
    found = all_votes(attempt.verdict for attempt in attempts if attempt.verdict is not None)
    return [f"In training, {vote_words(one)}." for one in found]


def _shares(rows: Sequence[StepProgress]) -> list[str]:
    """Mean over the steps in which anything varied."""
    sums: defaultdict[str, float] = defaultdict(float)
    told = [row.term_shares for row in rows if row.term_shares]
    for shares in told:
        for name, share in shares.items():
            sums[name] += share / len(told)
    ranked = sorted(sums.items(), key=lambda row: -row[1])
    parts = [f"{name} {share:.0%}" for name, share in ranked if abs(share) >= LEAST_SHARE]
    what = "Share of the variance of advantages within groups, by term of the reward"
    return [f"{what}: {', '.join(parts)}."] if parts else []


def _bias(attempts: Sequence[Attempt]) -> list[str]:
    """The examination of the process term, where it took more than one value."""
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    if len({reward.process for reward in rewards}) < 2:
        return []
    try:
        found = process_bias(
            [attempt.task for attempt in attempts],
            [reward.gate * reward.outcome for reward in rewards],
            [reward.process for reward in rewards],
        )
    except InputError:  # too few tasks to say anything
        return []
    correlation = "cannot be told" if found.correlation is None else _told(found.correlation)
    reversed_ = "cannot be told" if found.reversed_pairs is None else _told(found.reversed_pairs)
    return [
        f"Process term on {found.num_attempts} training attempts: its correlation with the outcome within tasks is "
        f"{correlation}, the share of unequal pairs that it puts the wrong way round {reversed_}; a policy that "
        f"maximised it alone would reach an outcome of {_told(found.maximiser)}, the mean is {_told(found.everyone)}."
    ]


def _told(interval: Interval) -> str:
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
