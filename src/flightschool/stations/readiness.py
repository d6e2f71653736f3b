"""What can be known to fail before a job begins: told in one error, before a model is downloaded or anything is made.

What needs only the configuration and this machine comes first (``check_settings``), then the model's folder and the
server and the teacher (``check_job``), then, once the tasks are known and before anything is measured, their prompts.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from flightschool.engines import ChatTokenizer
from flightschool.engines.opening import check_server, longest_context, server_key
from flightschool.engines.scoring import check_teacher
from flightschool.errors import ConfigError, InputError
from flightschool.perturbation import profile
from flightschool.protocols import Environment
from flightschool.rollouts import num_prompt_tokens
from flightschool.stations.harnesses import make_harness
from flightschool.stations.settings import FaultsTable, JobSettings
from flightschool.training import check_combination, check_machine, preflight

__all__ = ["check_job", "check_settings", "require_room", "require_strata"]


def check_settings(settings: JobSettings) -> None:
    """Raise the first thing that cannot work, whatever the model.

    Raises:
        InputError: settings exclude one another; no such device, tracker, program, fault profile or key.
    """
    check_combination(settings.training)
    check_machine(settings.training, settings.engine)
    make_harness(settings.harness)
    for key in FaultsTable.model_fields:
        _check_profile(key, getattr(settings.faults, key))
    server_key(settings.engine.key_env, "engine")
    if settings.teacher is not None:
        server_key(settings.teacher.key_env, "teacher")


def check_job(settings: JobSettings, model: Path) -> None:
    """Raise the first thing that cannot work with this model.

    Raises:
        InputError: see ``check_settings``; the model's folder is none; no server answers where one is named; the
            teacher has another vocabulary or too short a context.
        InfrastructureError: the teacher's server does not answer.
        TokenContractError: its log-probabilities are not in order.
    """
    check_settings(settings)
    preflight(settings.training, model, settings.engine)
    check_server(settings.engine)
    if settings.teacher is not None:
        check_teacher(settings.teacher, model, settings.training.max_context)


def require_strata(environment: Environment, settings: JobSettings) -> None:
    """Raise if a stratum that is to train is none of the environment's, before an audit of all its tasks.

    Raises:
        ConfigError: it is not there.
    """
    known = sorted({task.stratum for task in environment.tasks()})
    unknown = [name for name in settings.suite.trained if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise ConfigError(
            f"environment {environment.name!r} has no stratum {unknown[0]!r}",
            where="suite.trained",
            expected=f"some of {', '.join(known)}",
            mend=f"did you mean {near[0]!r}?" if near else f"see flightschool env show {environment.name}",
        )


def require_room(environment: Environment, model: Path, settings: JobSettings) -> None:
    """Raise if no prompt of the tasks that may train leaves room for a token: all attempts would end unbegun.

    Only prompts of the built-in harness are known beforehand. Ends with the first prompt that fits.

    Args:
        environment: shows its tools in the prompts.
        model: folder of the model that reads them.
        settings: of the job.

    Raises:
        ConfigError: the context is too short for all of them.
    """
    if settings.harness.command is not None:
        return
    tokenizer = ChatTokenizer.from_folder(model)
    positions = longest_context(model)
    longest = min(settings.training.max_context, positions)
    shortest: tuple[int, str] | None = None
    trained = settings.suite.trained
    for task in environment.tasks():
        if trained and task.stratum not in trained:
            continue
        length = num_prompt_tokens(environment, task, tokenizer)
        if length < longest:
            return
        shortest = min(shortest or (length, task.id), (length, task.id))
    if shortest is not None:
        own = settings.training.max_context <= positions
        raise ConfigError(
            f"every prompt is longer than a context of {longest} tokens; the shortest, of task {shortest[1]!r}, has "
            f"{shortest[0]}",
            where="training.max_context",
            expected="room for prompts, answers and results of tools",
            mend="raise max_context" if own else f"take a model with more than {positions} positions",
        )


def _check_profile(key: str, name: str) -> None:
    try:
        profile(name)
    except InputError as error:
        raise ConfigError(error.what, where=f"faults.{key}", expected=error.expected, mend=error.mend) from error
