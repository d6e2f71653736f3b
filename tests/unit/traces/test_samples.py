"""The shipped samples: one file a format, each found by its content and read without a complaint."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.errors import InputError
from flightschool.traces import IMPORT_FORMATS, import_traces, sample_trace


@pytest.mark.parametrize("name", IMPORT_FORMATS)
def test_a_sample_is_of_its_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(sample_trace(name))
    traces = import_traces(path)
    (episode,) = traces.episodes
    assert traces.format == name
    assert len(episode.calls) == 1
    assert episode.calls[0].complete


def test_there_is_a_page_for_each_format() -> None:
    pages = Path(__file__).parents[3] / "docs" / "formats"
    assert {page.stem for page in pages.glob("*.md")} == set(IMPORT_FORMATS)


def test_an_unknown_format_is_one_error() -> None:
    with pytest.raises(InputError, match="unknown trace format"):
        sample_trace("codecs")
