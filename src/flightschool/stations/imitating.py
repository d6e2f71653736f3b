"""The imitation station: what operators did well on record becomes the model that reinforcement begins with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flightschool.environments import environment_names, group_trials, load_record
from flightschool.protocols import Environment, RewardComposition, Tokenizer
from flightschool.records import Message, Task
from flightschool.rollouts import EpisodeRunner, demonstrate
from flightschool.stations.measuring import num_cores
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Tell
from flightschool.store import Workspace
from flightschool.traces import StoredTraces, load_traces, trace_names
from flightschool.training import TrainingSettings
from flightschool.training.imitation import ImitationResult, imitate

__all__ = ["learn_by_imitation"]


def learn_by_imitation(
    space: Workspace,
    environment: Environment,
    composition: RewardComposition,
    tasks: Sequence[Task],
    *,
    model: Path,
    tokenizer: Tokenizer,
    run: str,
    settings: JobSettings,
    tell: Tell,
) -> ImitationResult | None:
    """Imitate the successful recordings of ``tasks``; None if the job wants none or there are none.

    Args:
        tasks: sound tasks of the training pool: nothing of suite or holdout is among them.
        model: folder of the model to begin with.
        tokenizer: its tokenizer.
        run: name of the run that follows; the imitating model lies beside it.
    """
    if not settings.imitation.epochs:
        return None
    tell.station("imitate the recordings")
    name = _own_traces(space, settings.environment.name)
    if not name:
        tell.note("none: the workspace has no recordings that the environment was built from")
        return None
    runner = EpisodeRunner(environment, composition, run=f"{run}-imitation", keep_blob=space.store.put_blob)
    shown = demonstrate(
        runner,
        tasks,
        _recordings(space, name),
        tokenizer,
        max_context=settings.training.max_context,
        seed=settings.seed,
        most=settings.imitation.most,
    )
    space.store.put_many(("attempt", attempt.id, attempt) for attempt in shown.attempts)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(shown.left_out.items()))
    tell.note(
        f"{len(shown.attempts)} of {shown.num_recorded} recordings are imitated, {shown.num_mended} with slips cut out"
        + (f"; left out: {reasons}" if reasons else "")
    )
    if not shown.attempts:
        return None
    training: TrainingSettings = settings.training.model_copy(update={"seed": settings.seed})
    result = imitate(
        settings.imitation,
        training,
        model=model,
        out=space.run_dir(f"{run}-imitation"),
        demonstrations=shown.attempts,
        num_threads=num_cores(),
        progress=lambda number, total, _: tell.tick(number, total),
    )
    tell.note(f"surprisal {result.surprisals[0]:.2f} → {result.surprisals[-1]:.2f} nats a token")
    return result


def _own_traces(space: Workspace, environment: str) -> str:
    """Name of the set that an environment was built from; empty where it is gone, or is another one by now."""
    if environment not in environment_names(space.store):
        return environment if environment in trace_names(space.store) else ""
    record = load_record(space.store, environment)
    if not record.traces or record.traces not in trace_names(space.store):
        return ""
    return record.traces if StoredTraces(space.store, record.traces).record.blob == record.traces_digest else ""


def _recordings(space: Workspace, name: str) -> list[tuple[str, Sequence[Message]]]:
    """(task id, assistant messages) of every recorded episode."""
    groups = group_trials(load_traces(space.store, name).episodes)
    return [
        (task_id, [message for message in episode.messages if message.role == "assistant"])
        for task_id, trials in groups.items()
        for episode in trials
    ]
