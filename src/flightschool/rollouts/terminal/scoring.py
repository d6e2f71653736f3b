"""From verdicts of stages to one reward: ``mean`` over the steps that were judged, or the ``final`` one's."""

from __future__ import annotations

from flightschool.digest import digest
from flightschool.environments.terminal import TaskStep, TerminalTask
from flightschool.environments.terminal.grading import Graded
from flightschool.records import Check, CheckKind, Reward, Verdict

__all__ = ["Scores"]


class Scores:
    """Collects the verdicts of one attempt."""

    def __init__(self, task: TerminalTask) -> None:
        self._task = task
        self._checks: list[Check] = []
        self._rewards: list[float] = []

    def add(self, stage: TaskStep, graded: Graded) -> None:
        """A stage was judged; its reward is a number."""
        reward = graded.reward or 0.0
        evidence = f"reward {reward:g} from {graded.source}"
        if graded.left_out:
            evidence += "; left out of the end state: " + ", ".join(f"{o.path} ({o.why})" for o in graded.left_out[:8])
        self._note(stage, reward, evidence)

    def nothing(self, stage: TaskStep, why: str) -> None:
        """What the policy left could not be kept or judged, by its own doing."""
        self._note(stage, 0.0, why)

    def _note(self, stage: TaskStep, reward: float, evidence: str) -> None:
        self._rewards.append(reward)
        self._checks.append(
            Check(
                id=stage.name or "tests",
                kind=CheckKind.FUNCTIONAL,
                weight=1.0,
                passed=reward >= 1.0,
                evidence=evidence,
                author="task",
            )
        )

    def may_go_on(self, stage: TaskStep, graded: Graded) -> bool:
        """Whether the least rewards that a stage names were reached; a key that the verdict lacks was not."""
        known = {**graded.rewards, "reward": graded.reward or 0.0}
        return all(known.get(key, float("-inf")) >= least for key, least in stage.min_reward.items())

    def result(self) -> tuple[Verdict, Reward]:
        """Verdict and reward of the attempt; 0 where nothing was judged."""
        final = self._task.reward_strategy == "final"
        rewards = self._rewards[-1:] if final else self._rewards
        if final and len(self._rewards) < len(self._task.stages):
            rewards = []  # the last step was never reached
        total = sum(rewards) / len(rewards) if rewards else 0.0
        verdict = Verdict(checks=tuple(self._checks), verifier_digest=digest(["terminal", 1, self._task.digest]))
        return verdict, Reward(outcome=total, process=0.0, latency=0.0, gate=1.0, total=total)
