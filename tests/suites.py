"""Suites that nobody froze, for tests of what is done with one."""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.protocols import Environment
from flightschool.records import StratumShare, Suite, Task


def whole_suite(environment: Environment, name: str = "whole", tasks: Sequence[Task] | None = None) -> Suite:
    """A suite of all tasks of an environment, or of some, untrained, with the environment's own strata."""
    tasks = environment.tasks() if tasks is None else tasks
    return Suite(
        name=name,
        environment=environment.name,
        environment_digest=environment.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=tuple(
            StratumShare(
                name=stratum,
                weight=share,
                num_tasks=sum(task.stratum == stratum for task in tasks),
                families=tuple({task.family: None for task in tasks if task.stratum == stratum}),
                trained=False,
            )
            for stratum, share in environment.strata.items()
        ),
    )
