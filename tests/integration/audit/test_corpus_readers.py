"""A sample of the fifth half with what readers said of it, recorded: their programs run, their opinions count."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.audit.terminal.proposing import Readers
from flightschool.testing.corpus_measure import judge_corpus
from flightschool.testing.recorded_models import RecordedModel

pytestmark = [pytest.mark.integration, pytest.mark.long]

CORPUS = Path(__file__).parents[2] / "corpus" / "audit"
SAMPLE = {"x017": "leaking", "x027": "refuses-correct-work", "x063": "sound", "x082": "exploitable"}
"""The probes alone call the first, second and last sound, and accuse the third."""


def test_recorded_readers_tell_a_sample_from_the_sealed_half(tmp_path: Path) -> None:
    models = RecordedModel(CORPUS / "fifth.replies")
    with Readers(models, models, name="recorded") as readers:
        judged, num_left = judge_corpus(CORPUS / "fifth", tmp_path, only=frozenset(SAMPLE), readers=readers)
    assert num_left == 0
    assert models.num_missing == 0, "the words of a request have changed: no reply is recorded for it"
    assert {one.id: one.verdict for one in judged} == SAMPLE
