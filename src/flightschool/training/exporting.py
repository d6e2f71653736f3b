"""A run as two files that anyone can check: ``groups.jsonl`` and ``spans.jsonl``. Imports no torch.

``groups.jsonl`` has a line for every group that was ever admitted, in the order of admission:

* ``group``: its name; a group that is begun anew after a failure or a crash has another one. ``ordinal``: place of its
  task in the order of the source; no ordinal is consumed twice.
* ``task``, ``incarnation`` (which start of the run admitted it), ``admitted_version`` (the trainer's version then).
* ``state``: ``trained`` · ``zero_advantage`` · ``too_few`` · ``skipped`` (consumed by a step that was not finite) ·
  ``dead`` (sampled or consumed under weights that no checkpoint descends from, or begun anew) · ``waiting`` (finished,
  not consumed) · ``unfinished``.
* ``version_at_training``: the trainer's version just before the step that consumed it. ``order``: place in the order of
  consumption. Both null where it was not consumed.

``spans.jsonl`` has a line for every span of every attempt of a finished group: ``group``, ``attempt``, ``member`` (its
place in the group), ``outcome``, ``reward``, ``span``, ``parent``, ``kind``, ``turn``, ``tokens``, ``temperature``;
``mask`` (1 where a token got a gradient in the durable lineage); ``logprobs`` and ``versions``, one a token on
completions; ``advantage`` and ``version_at_training``, null where nothing trained; ``teacher``, what a teacher's word
added to the advantage of each token, empty without one. Staleness of a token is ``version_at_training`` − its version.

The files are made of the journal, the newest manifest and the credits that were written when groups were consumed, so
they tell what a resumed run would go on from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightschool.errors import InputError, NotFoundError, StoreError
from flightschool.records import Attempt, EpisodeGroup, GroupState, Record, SpanKind, TokenSpan
from flightschool.training.algorithms import most_spread
from flightschool.training.checkpoints import newest_whole
from flightschool.training.contract import token_versions
from flightschool.training.credits import read_credits
from flightschool.training.folders import RunFolder, durable_folder
from flightschool.training.journal import Admitted, Finished, read_journal, recover
from flightschool.training.messages import Account, Manifest
from flightschool.training.orchestrator import TrainResult
from flightschool.training.settings import TrainingSettings

__all__ = ["ExportSummary", "export_run"]


class ExportSummary(Record, frozen=True, kw_only=True):
    """What was written."""

    groups: int
    spans: int
    states: dict[str, int]
    """State → groups in it."""
    num_trained_tokens: int
    unreadable: tuple[str, ...] = ()
    """What is damaged and was left out: checkpoints, and lines of ``credits.jsonl`` that no trained group needs."""


def export_run(run_dir: Path, out: Path) -> ExportSummary:
    """Write the two files into a new folder ``out``, whole or not at all.

    Raises:
        NotFoundError: the folder holds no run, or nothing was admitted yet.
        InputError: ``out`` exists and is not empty.
        StoreError: the journal is broken, no checkpoint is whole, or the credits of a group that trained are.
    """
    folder = RunFolder(run_dir)
    if not folder.start.is_file() or not folder.journal.is_file():
        raise NotFoundError(
            f"no training run in {run_dir.name!r}",
            where=str(run_dir),
            expected="a folder with run.json and journal.bin",
            mend="name a run of kind 'training' of flightschool runs list",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder exists", where=str(out), expected="a new folder", mend="name another one")
    table = _Table(folder)
    num_spans = 0
    with durable_folder(out) as fresh:
        (fresh / "groups.jsonl").write_bytes(b"".join(_line(row) for row in table.groups()))
        with (fresh / "spans.jsonl").open("wb") as file:
            for row in table.spans():
                file.write(_line(row))
                num_spans += 1
    return ExportSummary(
        groups=sum(table.states.values()),
        spans=num_spans,
        states=dict(sorted(table.states.items())),
        num_trained_tokens=table.num_trained_tokens,
        unreadable=tuple(table.unreadable),
    )


def _line(row: dict[str, Any]) -> bytes:
    return msgspec.json.encode(row) + b"\n"


def _newest_manifest(folder: RunFolder, unreadable: list[str]) -> Manifest | None:
    """That of the result, or of the checkpoint that a resumed run would go on from; damaged ones are told."""
    if folder.result.is_file():
        return msgspec.json.decode(folder.result.read_bytes(), type=TrainResult).manifest
    newest, damaged = newest_whole(folder.checkpoints(), thorough=True)
    unreadable += [f"{error.what}; the one before it is told" for error in damaged]
    return newest[1] if newest else None


def _refuse_old(manifest: Manifest, root: Path) -> None:
    if len(manifest.accounts) != len(manifest.consumed):
        raise InputError(
            "the run was made by a version that did not write down at which step a group was consumed",
            where=str(root),
            expected="an account of every consumed group",
            mend="train again with this version; weights and metrics of the run can be used as they are",
        )


class _Table:
    """Journal and manifest side by side."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        start: dict[str, Any] = msgspec.json.decode(folder.start.read_bytes())
        settings = TrainingSettings.model_validate_json(start["settings"])
        self.unreadable: list[str] = []
        manifest = _newest_manifest(folder, self.unreadable)
        self._trained_members = settings.trained_members
        self._credits = {row.group: row for row in read_credits(folder.credits, self.unreadable.append)}
        self._accounts: dict[str, tuple[int, Account]] = {}
        if manifest is not None:
            _refuse_old(manifest, folder.root)
            self._accounts = {account.group: (order, account) for order, account in enumerate(manifest.accounts)}
        recovery = recover(folder.journal, manifest, settings.max_staleness)
        self._waiting = {entry.group.id for entry in recovery.offer}
        self._unfinished = {entry.group for entry in recovery.readmit}
        self.states: dict[str, int] = {}
        self.num_trained_tokens = 0

    def groups(self) -> Iterator[dict[str, Any]]:
        """Rows of ``groups.jsonl``."""
        finished = {entry.group.id for entry in read_journal(self._folder.journal) if isinstance(entry, Finished)}
        for entry in read_journal(self._folder.journal):
            if isinstance(entry, Admitted):
                state = self._state(entry.group, finished=entry.group in finished)
                self.states[state] = self.states.get(state, 0) + 1
                order, account = self._accounts.get(entry.group, (None, None))
                yield {
                    "group": entry.group,
                    "ordinal": entry.ordinal,
                    "task": entry.task.id,
                    "incarnation": entry.incarnation,
                    "admitted_version": entry.admitted_step,
                    "state": state,
                    "version_at_training": account.version if account else None,
                    "order": order,
                }

    def _state(self, group: str, *, finished: bool) -> str:
        if group in self._accounts:
            _, account = self._accounts[group]
            if account.state is not GroupState.COMPLETE:
                return str(account.state)
            return "trained" if account.applied else "skipped"
        if group in self._waiting:
            return "waiting"
        return "unfinished" if group in self._unfinished and not finished else "dead"

    def spans(self) -> Iterator[dict[str, Any]]:
        """Rows of ``spans.jsonl``."""
        for entry in read_journal(self._folder.journal):
            if isinstance(entry, Finished):
                _, account = self._accounts.get(entry.group.id, (None, None))
                trains = account is not None and account.state is GroupState.COMPLETE and account.applied
                yield from self._group_rows(entry.group, account.version if account and trains else None)

    def _group_rows(self, group: EpisodeGroup, version: int | None) -> Iterator[dict[str, Any]]:
        credited = self._credited(group) if version is not None else {}
        taught = {row.attempt: row.teacher for row in self._credits[group.id].members} if credited else {}
        for attempt in group.members:
            advantages = credited.get(attempt.id, {})
            for span in attempt.spans:
                trained = span.id in advantages
                teacher = taught.get(attempt.id, {}).get(span.id, ())
                self.num_trained_tokens += len(span.token_ids_T) if trained else 0
                yield _span_row(group, attempt, span) | {
                    "mask": [int(trained)] * len(span.token_ids_T),
                    "advantage": advantages.get(span.id),
                    "teacher": teacher if trained else (),
                    "version_at_training": version if trained else None,
                }

    def _credited(self, group: EpisodeGroup) -> dict[str, dict[int, float]]:
        """Attempt → span of sampled tokens → advantage, of the members that got a gradient."""
        if group.id not in self._credits:
            raise StoreError(
                f"the credits of group {group.id}, which trained, are missing",
                where=str(self._folder.credits),
                expected="a line of every consumed group" + "".join(f"; {told}" for told in self.unreadable),
                mend="restore the file; weights and metrics of the run can be used as they are",
            )
        rows = self._credits[group.id].members
        chosen = most_spread([row.advantage for row in rows], self._trained_members or len(rows))
        return {rows[i].attempt: rows[i].spans for i in chosen}


def _span_row(group: EpisodeGroup, attempt: Attempt, span: TokenSpan) -> dict[str, Any]:
    return {
        "group": group.id,
        "attempt": attempt.id,
        "member": attempt.index,
        "outcome": str(attempt.outcome),
        "reward": None if attempt.reward is None else attempt.reward.total,
        "span": span.id,
        "parent": span.parent,
        "kind": str(span.kind),
        "turn": span.turn,
        "tokens": span.token_ids_T,
        "logprobs": span.logprobs_T,
        "versions": token_versions(span) if span.kind is SpanKind.COMPLETION else [],
        "temperature": span.temperature,
    }
