"""Every way of publication gives what was published, and notices what was not."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.needs import reason
from torch import Tensor

from flightschool.errors import InfrastructureError
from flightschool.records import WeightsVersion
from flightschool.training.publication import make_feed, make_sink, words_digest
from flightschool.training.publisher import check_served
from flightschool.training.settings import TrainingSettings

VERSION = WeightsVersion(run="r", incarnation=0, step=3)


def state(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"a": torch.randn(5, 3, generator=generator), "b": torch.randn(7, generator=generator).bfloat16()}


@pytest.mark.parametrize("way", ["shared_memory", "safetensors", "broadcast"])
def test_what_arrives_is_what_was_published(tmp_path: Path, way: Any) -> None:
    settings = TrainingSettings(publication=way)
    sink = make_sink(settings, tmp_path / "weights", state())
    feed = make_feed(settings, tmp_path / "weights", state(9))
    for seed in range(3):
        sent = state(seed)
        version = sink.write(sent, WeightsVersion(run="r", incarnation=0, step=seed))
        got = feed.read(version)
        assert version.digest
        assert got.keys() == sent.keys()
        assert all(torch.equal(got[name], sent[name]) for name in sent)
        feed.release()


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason=reason("Linux", "pages of files are kept elsewhere"))
@pytest.mark.parametrize("spare", [True, False])
def test_pages_that_were_read_are_given_back_or_kept(tmp_path: Path, spare: bool) -> None:
    settings, sent = TrainingSettings(spare_memory=spare), {"a": torch.ones(2_000_000)}
    sink = make_sink(settings, tmp_path / "weights", sent)
    feed = make_feed(settings, tmp_path / "weights", sent)
    version = sink.write(sent, VERSION)
    feed.read(version)
    before = (tmp_path / "weights").stat().st_blocks
    feed.release()
    given_back = 512 * (before - (tmp_path / "weights").stat().st_blocks)
    assert given_back >= 8_000_000 if spare else given_back == 0


@pytest.mark.parametrize("way", ["shared_memory", "safetensors"])
def test_another_version_or_other_bytes_are_refused(tmp_path: Path, way: Any) -> None:
    settings = TrainingSettings(publication=way)
    sink = make_sink(settings, tmp_path / "weights", state())
    version = sink.write(state(), VERSION)
    feed = make_feed(settings, tmp_path / "weights", state())
    with pytest.raises(InfrastructureError):
        feed.read(WeightsVersion(run="r", incarnation=0, step=2, digest=version.digest))
    with pytest.raises(InfrastructureError, match="verify"):
        feed.read(WeightsVersion(run="r", incarnation=0, step=3, digest="sha256:other"))


def test_the_digest_of_words_sees_values_places_and_names() -> None:
    one = words_digest(state())
    assert one == words_digest(dict(reversed(state().items())))
    swapped = state()
    swapped["a"][[0, 1]] = swapped["a"][[1, 0]]
    renamed = {"c": state()["a"], "b": state()["b"]}
    shaped = {"a": state()["a"].view(3, 5), "b": state()["b"]}
    assert len({one, words_digest(swapped), words_digest(renamed), words_digest(shaped), words_digest(state(1))}) == 5


def test_an_engine_that_serves_other_weights_is_found() -> None:
    model = torch.nn.Linear(3, 2)
    right = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    check_served(model, right, VERSION)
    with torch.no_grad():
        model.weight[0, 0] += 1e-7 + model.weight[0, 0].abs() * 1e-6
    with pytest.raises(InfrastructureError, match="does not serve step 3"):
        check_served(model, right, VERSION)
