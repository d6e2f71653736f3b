"""The history of a suite: no line crosses the border between two versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flightschool.reports import HistoryScore, HistoryVersion, history_chart, write_history


def version(name: str, *values: float) -> HistoryVersion:
    scores = tuple(
        HistoryScore(label=f"{name}-{n}", policy="p", value=value, low=value - 0.1, high=value + 0.1)
        for n, value in enumerate(values)
    )
    return HistoryVersion(suite=name, scores=scores, anchors=7)


def test_no_line_crosses_a_border() -> None:
    drawn = str(history_chart([version("v1", 0.2, 0.4, 0.5), version("v2", 0.3, 0.6)]))
    lines = re.findall(r'<path d="M([^"]+)" class="line">', drawn)
    (border,) = re.findall(r'<line x1="([\d.]+)"[^>]*class="border"', drawn)
    assert len(lines) == 2
    for path in lines:
        xs = [float(point.split(",")[0]) for point in path.split("L")]
        assert all(x < float(border) for x in xs) or all(x > float(border) for x in xs)
    assert "not comparable (7 anchors)" in drawn


def test_a_page_is_one_file_with_escaped_text(tmp_path: Path) -> None:
    write_history("<b>", [version("<i>", 0.5)], tmp_path / "deep" / "h.html")
    text = (tmp_path / "deep" / "h.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "&lt;i&gt;" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    with pytest.raises(ValueError, match="no version"):
        history_chart([])
