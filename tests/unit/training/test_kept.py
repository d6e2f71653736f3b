"""Batches that were skipped are read back whole, and say what in them is not finite."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import pytest

from flightschool.errors import StoreError
from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.folders import RunFolder
from flightschool.training.kept import keep_batch, kept_members, read_kept
from flightschool.training.messages import TrainGroup, TrainMember


def member(attempt: str, advantage: float = 0.5, logprobs: tuple[float, ...] = (-0.1, -2.5)) -> TrainMember:
    prompt = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1, 2, 3))
    said = TokenSpan(
        id=1,
        parent=0,
        kind=SpanKind.COMPLETION,
        token_ids_T=(4, 5),
        logprobs_T=logprobs,
        versions=(VersionRun(step=3, count=1), VersionRun(step=4, count=1)),
    )
    return TrainMember(attempt=attempt, advantage=advantage, spans=(prompt, said))


def test_a_batch_is_read_back_and_its_faults_come_first(tmp_path: Path) -> None:
    assert read_kept(tmp_path / "kept") == ()
    group = TrainGroup(id="g", members=(member("g:0"), member("g:1", logprobs=(-0.1, -math.inf))))
    keep_batch(tmp_path / "kept", [group], incarnation=1, step=12)
    keep_batch(tmp_path / "kept", [group], incarnation=0, step=12)  # later, though its name sorts before
    first, second = read_kept(tmp_path / "kept")
    assert (first.incarnation, first.step, first.groups) == (1, 12, (group,))
    assert second.incarnation == 0
    worst, well = kept_members(first)
    assert (worst.attempt, worst.not_finite, worst.least_logprob) == ("g:1", ("logprobs",), -math.inf)
    assert (well.attempt, well.not_finite, well.num_tokens, well.oldest_step) == ("g:0", (), 2, 3)


def test_each_kind_of_fault_is_named(tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(
        member("a", advantage=math.nan), turn_advantages={0: math.inf}, token_advantages={1: (0.0, math.nan)}
    )
    keep_batch(tmp_path, [TrainGroup(id="g", members=(wrong,))], incarnation=0, step=0)
    (batch,) = read_kept(tmp_path)
    assert kept_members(batch)[0].not_finite == ("advantage", "turn_advantages", "token_advantages")


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = keep_batch(tmp_path, [TrainGroup(id="g", members=(member("a"),))], incarnation=0, step=0)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StoreError, match=r"a kept batch cannot be read.*incarnation-0-step-000000"):
        read_kept(tmp_path)


def test_the_snippet_of_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?read_kept.*?)```", docs, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    kept = RunFolder(tmp_path / ".flightschool" / "runs" / "RUN").kept
    keep_batch(kept, [TrainGroup(id="g", members=(member("g:0", advantage=math.nan),))], incarnation=0, step=7)
    exec(compile(snippet, "docs/training.md", "exec"), {})
    assert capsys.readouterr().out == "7 g:0 ('advantage',) nan -2.5\n"
