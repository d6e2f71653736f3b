from __future__ import annotations

import asyncio
import io

import pytest

from flightschool.errors import InfrastructureError, StoreError
from flightschool.training.link import InlineLink
from flightschool.training.messages import Start, TrainerSpec
from flightschool.training.server import Server, TrainerCore

SPEC = TrainerSpec(run="r", incarnation=0, step=0, model="", run_dir="", weights="", settings="{}")


def raising(error: Exception, log: io.StringIO | None = None) -> InlineLink:
    def build(spec: TrainerSpec) -> TrainerCore:
        raise error

    return InlineLink(Server(build, log))


def test_what_a_library_raises_in_the_trainer_is_told_with_place_and_mend() -> None:
    log = io.StringIO()
    with pytest.raises(
        InfrastructureError, match="the trainer raised ZeroDivisionError at 'start': by nothing"
    ) as told:
        asyncio.run(raising(ZeroDivisionError("by nothing"), log).ask(Start(spec=SPEC)))
    assert told.value.where
    assert told.value.expected
    assert "--resume" in told.value.mend
    assert "in build" in log.getvalue()  # the place that the error names holds the stack


def test_an_error_of_ours_arrives_as_it_was() -> None:
    error = StoreError("a", where="b", expected="c", mend="d")
    with pytest.raises(StoreError) as told:
        asyncio.run(raising(error).ask(Start(spec=SPEC)))
    assert told.value.as_dict() == error.as_dict()
