"""Kinship of a suite with what a policy was trained on: open parts by name, the sealed part by counts alone.

The open suite is compared here; each suspected task is marked and scored apart, none is dropped. The sealed part is
compared in a process of its own, which reads the key, is given the training texts, and answers with counts: neither
text nor key nor names come back.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import msgspec

from flightschool.errors import GateError, InfrastructureError
from flightschool.evaluation.sealed import SealedHoldout
from flightschool.governance import KeyRing
from flightschool.lineage import KinCounts, NearCopy, Origin, Signature, Text, count_kin, near_copies, suites_met
from flightschool.protocols import Environment
from flightschool.records import Record, Suite, Task

__all__ = [
    "Ancestry",
    "Kin",
    "count_sealed_kin",
    "kinship",
    "refuse_kin",
    "refuse_measured",
    "refuse_sealed_kin",
    "suite_texts",
    "task_texts",
]

TIMEOUT_S = 300.0
MOST_NAMED = 8


class Ancestry(Record, frozen=True, kw_only=True):
    """What a policy was trained on, as far as the workspace knows."""

    statement: str
    """In words: of which run, or that nothing is known."""
    texts: tuple[Text, ...] = ()


class Kin(Record, frozen=True, kw_only=True):
    """Which tasks of a suite are kin to an ancestry."""

    statement: str
    suspected: dict[str, str]
    """Task → the strongest kinship, in words."""


class _Question(Record, frozen=True, kw_only=True):
    """What the counting process is given on its standard input."""

    key_id: str
    role: str
    folder: str
    signatures: tuple[Signature, ...]
    texts: tuple[Text, ...]


def task_texts(tasks: Sequence[Task], origin: Origin = Origin.TASK) -> tuple[Text, ...]:
    """The instructions of tasks, with the house rules that they stand under."""
    return tuple(Text(id=task.id, origin=origin, text=task.instruction, context=task.guidance) for task in tasks)


def suite_texts(suite: Suite, environment: Environment) -> tuple[Text, ...]:
    """The texts of a suite's tasks, from the environment that it was frozen of."""
    return task_texts([environment.task(task_id) for task_id in suite.task_digests])


def kinship(suite: Suite, items: Sequence[Text], ancestry: Ancestry) -> Kin:
    """Mark the tasks of a suite that have near copies among an ancestry, or whose suite's canary stands there.

    Args:
        suite: the frozen suite.
        items: the texts of its tasks (``suite_texts``, or as the freeze kept them: ``load_texts``).
        ancestry: what was or will be trained on.
    """
    suspected: dict[str, str] = {}
    met = suites_met(ancestry.texts, [suite.digest])
    if met:
        reason = f"the suite's canary stands in {', '.join(met[suite.digest][:MOST_NAMED])}"
        suspected = {item.id: reason for item in items}
    order: dict[str, NearCopy] = {}
    for found in near_copies(items, ancestry.texts):
        known = order.get(found.item)
        if known is None or _strength(found) < _strength(known):
            order[found.item] = found
    suspected |= {task: f"{f.origin} {f.source} ({f.kind}, {f.score:.2f})" for task, f in order.items()}
    statement = f"{ancestry.statement}: {len(ancestry.texts)} texts, {len(suspected)} of {len(items)} tasks suspected"
    return Kin(statement=statement, suspected=suspected)


def refuse_kin(suite: Suite, items: Sequence[Text], ancestry: Ancestry) -> None:
    """Refuse to train on (or to freeze after having trained on) what a suite measures.

    Raises:
        GateError: names the kin.
    """
    kin = kinship(suite, items, ancestry)
    if kin.suspected:
        named = [f"{task}: {reason}" for task, reason in list(kin.suspected.items())[:MOST_NAMED]]
        more = f" and {len(kin.suspected) - MOST_NAMED} more" if len(kin.suspected) > MOST_NAMED else ""
        raise GateError(
            f"{len(kin.suspected)} task(s) of suite {suite.name!r} have kin in training: {'; '.join(named)}{more}",
            where=ancestry.statement,
            expected="training texts of which no measured task is a near copy",
            mend="train on the pool that the freeze left over, or freeze tasks that were never trained on",
        )


def refuse_measured(suite: Suite, tasks: Sequence[Task], *, where: str) -> None:
    """Refuse to train on a task that a suite (or listed holdout) holds, by digest: no environment is needed.

    Raises:
        GateError: names the tasks.
    """
    digests = set(suite.task_digests.values())
    shared = [task.id for task in tasks if task.digest in digests]
    if shared:
        more = f" and {len(shared) - MOST_NAMED} more" if len(shared) > MOST_NAMED else ""
        raise GateError(
            f"{len(shared)} task(s) to train on are measured by suite {suite.name!r}: "
            f"{', '.join(shared[:MOST_NAMED])}{more}",
            where=where,
            expected="tasks that no suite and no holdout holds",
            mend="train on the pool that the freeze left over; a suite that a newer version replaced is out of use "
            "(eval freeze --follows)",
        )


def count_sealed_kin(card: SealedHoldout, texts: Sequence[Text], ring: KeyRing, *, role: str) -> KinCounts:
    """How many sealed tasks have near copies among texts; asked of a separate process.

    Raises:
        GateError: the process refused: no key here, or another role holds it.
        InfrastructureError: it did not answer.
    """
    question = _Question(
        key_id=card.key_id,
        role=role,
        folder=str(ring.folder),
        signatures=card.signatures,
        texts=tuple(msgspec.structs.replace(text, id="") for text in texts),
    )
    try:
        answered = subprocess.run(
            [sys.executable, "-m", "flightschool.evaluation.counting"],
            input=msgspec.msgpack.encode(question),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(
            f"the counting process did not answer: {error}",
            where=f"holdout {card.name}",
            expected=f"counts within {TIMEOUT_S:.0f} s",
            mend="try again; nothing was opened",
        ) from error
    if answered.returncode:
        raise GateError(
            "the sealed part cannot be compared: " + (answered.stderr.decode(errors="replace").strip() or "no answer"),
            where=f"holdout {card.name}",
            expected=f"the key {card.key_id} on this machine, held by role {card.role!r}",
            mend="let the evaluation role run this check",
        )
    return msgspec.json.decode(answered.stdout, type=KinCounts)


def refuse_sealed_kin(card: SealedHoldout, ancestry: Ancestry, ring: KeyRing) -> str:
    """Refuse to train on what has kin among sealed tasks; returns what was compared, in words.

    Raises:
        GateError: some sealed tasks have kin. How many of which kind is told, which of them is not. Or nothing can be
            counted: the key is not here (a team keeps it with the evaluation role).
        InfrastructureError: the counting process did not answer.
    """
    if not ancestry.texts:
        return "no training texts to compare"
    counts = count_sealed_kin(card, ancestry.texts, ring, role=card.role)
    if counts.total:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.by_kind.items()))
        raise GateError(
            f"{counts.total} of {counts.num_items} sealed tasks have kin in training ({kinds})",
            where=f"holdout {card.name}, {ancestry.statement}",
            expected="training texts of which no sealed task is a near copy",
            mend="train on the pool that the freeze left over; which tasks these are is not told",
        )
    return f"{counts.num_texts} training texts compared with {counts.num_items} sealed tasks, none is kin"


def answer(question: bytes) -> bytes:
    """What the counting process does: read the key, count, forget. Raises ``FlightschoolError`` as ``KeyRing.take``."""
    from pathlib import Path

    asked = msgspec.msgpack.decode(question, type=_Question)
    key = KeyRing(Path(asked.folder)).take(asked.key_id, role=asked.role)
    return msgspec.json.encode(count_kin(asked.signatures, asked.texts, key.secret))


def _strength(found: NearCopy) -> tuple[int, float]:
    kinds = ("exact", "normalised", "masked", "ngram", "minhash")
    return kinds.index(found.kind), -found.score
