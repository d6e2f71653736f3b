"""The texts of a suite's tasks, kept at the freeze: near copies are found when the environment has changed or is gone.

They are kept in clear, as they lie in the environment of an open suite. What is *sealed* has none here: its card holds
keyed signatures instead (``lineage.signatures``), and texts that a later freeze seals move into its box with every
other record that holds them. The audit log has the digest of what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.digest import digest as content_digest
from flightschool.errors import GateError, NotFoundError
from flightschool.evaluation.kinship import task_texts
from flightschool.governance import AuditLog
from flightschool.lineage import Text
from flightschool.protocols import Environment, Store
from flightschool.records import Record, Suite, Task

__all__ = ["frozen_tasks", "load_texts", "save_texts"]

TEXTS_KIND = "suite-texts"
KEEP = "keep texts"


class KeptTexts(Record, frozen=True, kw_only=True):
    """What the agent is told by each task of one suite."""

    suite_digest: str
    texts: tuple[Text, ...]

    @property
    def digest(self) -> str:
        """Digest of all of it, which the audit log holds."""
        return content_digest(self)


def save_texts(store: Store, suite: Suite, environment: Environment, *, actor: str = "freeze") -> bool:
    """Keep the texts of a suite; whether they are kept now. What is kept is never overwritten.

    Nothing is kept unless the environment holds every task as it was frozen: half of a suite compared would pass for
    the whole.
    """
    if load_texts(store, suite) is not None:
        return True
    tasks = frozen_tasks(suite, environment)
    if len(tasks) < len(suite.task_digests):
        return False
    kept = KeptTexts(suite_digest=suite.digest, texts=task_texts(tasks))
    AuditLog(store).append(actor, KEEP, suite.name, {"digest": kept.digest, "suite": suite.digest})
    store.put(TEXTS_KIND, suite.digest, kept)
    return True


def load_texts(store: Store, suite: Suite) -> tuple[Text, ...] | None:
    """The texts of a suite as they were kept; None where none are: frozen before texts were, or sealed since.

    Raises:
        GateError: they are not those that the audit log saw.
    """
    if not store.has(TEXTS_KIND, suite.digest):
        return None
    kept = store.get(TEXTS_KIND, suite.digest, KeptTexts)
    seen = [e.detail["digest"] for e in AuditLog(store).verified() if e.action == KEEP and e.subject == suite.name]
    if kept.digest not in seen or kept.suite_digest != suite.digest:
        raise GateError(
            f"the kept texts of suite {suite.name!r} are not those that the audit log saw",
            where=f"suite {suite.name}",
            expected=f"digest {seen[-1]}" if seen else "texts in the audit log",
            mend="restore the workspace from a copy; find out who changed the record",
        )
    return kept.texts


def frozen_tasks(suite: Suite, environment: Environment) -> Sequence[Task]:
    """The tasks of a suite that the environment still holds as they were frozen."""
    found = []
    for task_id, digest in suite.task_digests.items():
        try:
            task = environment.task(task_id)
        except NotFoundError:
            continue
        if task.digest == digest:
            found.append(task)
    return found
