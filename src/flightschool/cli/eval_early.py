"""``eval compare --early``: two policies side by side, ended as soon as it is decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.eval_judge import judge_alpha
from flightschool.cli.eval_run import EVALUATION_KIND, Asked, keeping, open_suite, prepared
from flightschool.cli.references import actor, workspace
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.evaluation import EarlyComparison, EvaluationRun, How, Look
    from flightschool.store import Workspace

__all__ = ["compare_now", "early_told"]


def compare_now(
    suite: str, baseline: str, candidate: str, asked: Asked, *, alpha: float, look_every: int
) -> EarlyComparison:
    """Measure both now, task by task in random order, and keep what was seen.

    Raises:
        InputError: one of them is an evaluation: what was measured already cannot be ended early.
        GateError: as ``compare_early``.
    """
    from flightschool.evaluation import compare_early, evaluate, keep_early

    with workspace() as space:
        _require_policies(space, baseline, candidate)
        frozen, world = open_suite(space, suite)
        name = _free_id(space)
        sides = [
            (label, *prepared(space, frozen, world, text, asked))
            for label, text in (("baseline", baseline), ("candidate", candidate))
        ]
        total = 2 * asked.repeats * len(frozen.task_digests)
        with keeping(space) as keep, output.progress(f"{candidate} beside {baseline}", total) as bar:

            def measure(tasks: Sequence[str]) -> tuple[EvaluationRun, EvaluationRun]:
                made = []
                for label, chosen, how in sides:
                    own: How = {
                        **how,
                        "run": f"{name}-{label}",
                        "only": tasks,
                        "on_attempt": keep,
                        "progress": bar.tick,
                    }
                    made.append(evaluate(frozen, world, chosen, **own))
                return made[0], made[1]

            found = compare_early(
                frozen,
                measure,
                comparison_id=name,
                seed=asked.seed,
                batch=look_every,
                alpha=alpha,
                judge_alpha=lambda *runs: judge_alpha(space, world, frozen, runs),
                on_look=_tell_look,
            )
        keep_early(space.store, found, actor=actor())
    last = found.looks[-1]
    ended = "decided, ended early" if found.ended_early else "not decided before the end"
    output.say(f"{last.num_tasks} of {found.num_tasks} tasks measured: {ended}")
    return found


def early_told(found: EarlyComparison) -> dict[str, Any]:
    """What ``--json`` says of the looks."""
    last = found.looks[-1]
    return {
        "id": found.id,
        "low": last.low,
        "high": last.high,
        "num_tasks": last.num_tasks,
        "of": found.num_tasks,
        "num_looks": len(found.looks),
        "ended_early": found.ended_early,
        "looks": msgspec.to_builtins(found.looks),
        "digest": found.digest,
    }


def _tell_look(look: Look) -> None:
    output.say(f"after {look.num_tasks} tasks: the whole suite will show {look.low:+.3f} to {look.high:+.3f}")


def _require_policies(space: Workspace, *references: str) -> None:
    for reference in references:
        if space.store.has(EVALUATION_KIND, reference):
            raise InputError(
                f"{reference!r} was measured already",
                where="--early",
                expected="two policies that are measured now",
                mend="leave --early out, or name the policies",
            )


def _free_id(space: Workspace) -> str:
    from flightschool.evaluation import EARLY_KIND

    taken = set(space.store.keys(EARLY_KIND))
    number = len(taken) + 1
    while f"early-{number:04d}" in taken:
        number += 1
    return f"early-{number:04d}"
