"""Imitation: a few passes over demonstrations, so that reinforcement does not have to find the first success by chance.

The loss is the mean −log π of the demonstrated tokens (cross-entropy). It is the trainer's own policy gradient with
advantage 1 and no importance weight, since nobody of ours sampled these tokens: the same packs, the same head, the same
optimizer. Prompts and results of tools are read and never trained. The model that comes out is an ordinary folder,
from which a run begins like from any other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from pydantic import Field

from flightschool.config import Settings
from flightschool.errors import InputError
from flightschool.records import Attempt, Record, SpanKind
from flightschool.training.messages import StepStats, TrainerSpec, TrainGroup, TrainMember
from flightschool.training.settings import TrainingSettings

__all__ = ["ImitationResult", "ImitationSettings", "imitate"]

RESULT_FILE = "imitation.json"


class ImitationSettings(Settings):
    """How demonstrations are imitated."""

    epochs: int = Field(default=0, ge=0)
    """Passes over the demonstrations. 0: none are imitated."""
    most: int | None = Field(default=None, ge=1)
    """Most demonstrations, one of each task family before the second of any. None: all that were accepted."""
    batch_size: int = Field(default=8, ge=1)
    """Episodes an optimizer step."""
    learning_rate: float = Field(default=5e-5, gt=0.0)
    """Learning rate of AdamW at the first step; it falls linearly towards 0, so that the last batches do not decide."""


class ImitationResult(Record, frozen=True, kw_only=True):
    """What an imitation made; lies beside the model."""

    model: str
    model_digest: str
    model_before: str
    demonstrations: tuple[str, ...]
    """Digests of the imitated episodes, in the order in which they were given."""
    num_trained_tokens: int
    """Of one pass."""
    surprisals: tuple[float, ...]
    """Mean −log π of each step's tokens before the step, in nats."""


def imitate(
    settings: ImitationSettings,
    training: TrainingSettings,
    *,
    model: Path,
    out: Path,
    demonstrations: Sequence[Attempt],
    num_threads: int = 1,
    progress: Callable[[int, int, StepStats], None] | None = None,
) -> ImitationResult:
    """Imitate and write the model to ``out``; a finished imitation found there is returned as it is.

    Args:
        settings: passes, batch, learning rate.
        training: of the run that will follow: device, trained layers, limits, seed.
        model: folder of the model to begin with.
        out: folder of the model that is made; appears whole or not at all.
        demonstrations: attempts with demonstration spans, all of which succeeded.
        num_threads: threads of torch; nothing else runs meanwhile.
        progress: is called after every step with its number, how many there will be, and its figures.

    Raises:
        InputError: nothing is demonstrated.
        TokenContractError: a demonstration is broken.
    """
    if (out / RESULT_FILE).exists():
        return msgspec.json.decode((out / RESULT_FILE).read_bytes(), type=ImitationResult)
    if not demonstrations:
        raise InputError(
            "there is nothing to imitate",
            where=str(out),
            expected="at least one successful demonstration",
            mend="import traces with successful episodes of the training tasks, or set imitation.epochs = 0",
        )
    from flightschool.training.folders import durable_folder
    from flightschool.training.trainers import make_trainer

    trainer = make_trainer(_spec(settings, training, model, out, num_threads))
    batches = list(_batches(demonstrations, settings, training.seed))
    surprisals: list[float] = []
    num_trained = 0
    for number, batch in enumerate(batches, start=1):
        num_trained += trainer.accumulate(*batch).num_trained_tokens
        stats = trainer.step(rate=1.0 - (number - 1) / len(batches)).stats
        surprisals.append(stats.surprisal)
        if progress is not None:
            progress(number, len(batches), stats)
    with durable_folder(out) as fresh:
        result = ImitationResult(
            model=str(out),
            model_digest=trainer.export(fresh),
            model_before=str(model),
            demonstrations=tuple(attempt.digest for attempt in demonstrations),
            num_trained_tokens=num_trained // settings.epochs,
            surprisals=tuple(surprisals),
        )
        (fresh / RESULT_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    return result


def _member(attempt: Attempt) -> TrainMember:
    if not any(span.kind is SpanKind.DEMONSTRATION for span in attempt.spans):
        raise InputError(
            f"attempt {attempt.id} demonstrates nothing",
            expected="spans of kind demonstration",
            mend="play the recording through a RecitalPolicy",
        )
    if attempt.reward is None or not attempt.reward.success:
        raise InputError(
            f"attempt {attempt.id} did not succeed",
            expected="demonstrations that the verifier accepts",
            mend="leave out what failed when played again",
        )
    return TrainMember(attempt=attempt.id, advantage=1.0, spans=attempt.spans)


def _batches(
    demonstrations: Sequence[Attempt], settings: ImitationSettings, seed: int
) -> Iterator[Sequence[TrainGroup]]:
    """Each pass in an order of its own; batches of nearly equal size, none longer than asked for.

    Demonstrations that open alike stand together, and where they meet in a batch they are one group: what they share
    is computed once.
    """
    order = random.Random(seed)
    kin = _alike([_member(attempt) for attempt in demonstrations])
    num_batches = -(-len(demonstrations) // settings.batch_size)
    for _ in range(settings.epochs):
        shuffled = [(n, member) for n, members in enumerate(order.sample(kin, len(kin))) for member in members]
        for index in range(num_batches):
            first, last = (len(shuffled) * place // num_batches for place in (index, index + 1))
            groups = itertools.groupby(shuffled[first:last], key=lambda row: row[0])
            yield [
                TrainGroup(id=f"imitation-{index}-{n}", members=tuple(member for _, member in rows))
                for n, rows in groups
            ]


def _alike(members: Sequence[TrainMember]) -> list[list[TrainMember]]:
    """Members by opening: those whose first spans begin with the same half."""
    kin: list[list[TrainMember]] = []
    for member in members:
        opening = member.spans[0].token_ids_T
        for others in kin:
            other = others[0].spans[0].token_ids_T
            half = (max(len(opening), len(other)) + 1) // 2
            if opening[:half] == other[:half]:
                others.append(member)
                break
        else:
            kin.append([member])
    return kin


def _spec(
    settings: ImitationSettings, training: TrainingSettings, model: Path, out: Path, num_threads: int
) -> TrainerSpec:
    update = {
        "learning_rate": settings.learning_rate,
        "warmup_steps": 0,
        "algorithm": "grpo",  # advantage 1 and weight 1: what an algorithm adds to that has no meaning here
        "proximal": "auto",
        "correction": "auto",
        "reject_low": None,
        "reject_high": None,
        "veto": None,
        "opsm_delta": None,
        "kl_weight": 0.0,
        "kl_reference": "start",
        "kl_estimator": "k3",
        "distill_weight": 0.0,
        "overlong_limit": None,
        "num_threads": num_threads,
    }
    return TrainerSpec(
        run=out.name,
        incarnation=0,
        step=0,
        model=str(model),
        run_dir=str(out.parent),
        weights="",
        settings=training.model_copy(update=update).model_dump_json(),
    )
