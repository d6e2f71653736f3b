"""What rollouts say about tasks, what families say about their members, and what the pool says about families.

A task borrows from its sisters, and a family of which little was seen from the other families: after an imitation most
families are solved, and two successes in one of them mean "solved" sooner than they would in a pool of hard ones.

Evidence is the graded part of the reward, gate · outcome. Shaping terms (process, latency) differ a little between
almost any two attempts; counted as signal they would admit every task, also those at which nothing is ever solved.
Infra failures are no evidence: the policy did not cause them.

Where people have reviewed how often the verifier is wrong, signal is what is left of it: a grader that errs fakes mixed
groups at tasks that are never, or always, solved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from flightschool.records import Attempt, Task
from flightschool.statistics import SignalPrior, family_prior, signal_posterior

__all__ = ["Evidence", "graded"]


def graded(attempt: Attempt) -> float | None:
    """Gate · outcome of an attempt; None when it was an infra failure."""
    return None if attempt.reward is None else attempt.reward.gate * attempt.reward.outcome


class Evidence:
    """Rewards seen so far, by task.

    Args:
        tasks: the screened pool.
        group_size: members of a training group.
        noise: how often the verifier is wrong, (ρ0, ρ1); none by default.
    """

    def __init__(self, tasks: Sequence[Task], group_size: int, noise: tuple[float, float] = (0.0, 0.0)) -> None:
        self._group_size = group_size
        self._noise = noise
        self._rewards: dict[str, list[float]] = {task.id: [] for task in tasks}
        self._spent: dict[str, int] = dict.fromkeys(self._rewards, 0)
        self._family_of = {task.id: task.family for task in tasks}
        self._members: dict[str, list[str]] = defaultdict(list)
        for task in tasks:
            self._members[task.family].append(task.id)
        self._priors: dict[str, SignalPrior] = {}

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Take in attempts. Those at unknown tasks are refused with ``KeyError``."""
        self._priors.clear()
        for attempt in attempts:
            self._spent[attempt.task] += 1
            reward = graded(attempt)
            if reward is not None:
                self._rewards[attempt.task].append(reward)

    def own(self, task_id: str) -> Sequence[float]:
        """Rewards of the task itself."""
        return self._rewards[task_id]

    def spent(self, task_id: str) -> int:
        """Attempts at the task, infra failures included."""
        return self._spent[task_id]

    def of_family(self, family: str) -> list[float]:
        """Rewards of all tasks of a family."""
        return [reward for member in self._members[family] for reward in self._rewards[member]]

    def signal(self, task_id: str, *, raw: bool = False) -> float:
        """Posterior probability that a group at this task carries reward variance that the work deserves.

        Args:
            raw: count the verifier's errors as signal, too.
        """
        rho0, rho1 = (0.0, 0.0) if raw else self._noise
        family = self._family_of[task_id]
        sisters = [self._rewards[m] for m in self._members[family] if m != task_id]
        prior = family_prior([rewards for rewards in sisters if rewards], base=self._prior_of(family))
        return signal_posterior(self._rewards[task_id], self._group_size, prior=prior, rho0=rho0, rho1=rho1)

    def _prior_of(self, family: str) -> SignalPrior:
        """What the other families let expect of this one."""
        if family not in self._priors:
            others = [self.of_family(other) for other in self._members if other != family]
            self._priors[family] = family_prior([rewards for rewards in others if rewards])
        return self._priors[family]
