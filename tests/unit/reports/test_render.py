"""The page: complete, offline, escaped, and saying what the data say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from flightschool.records import AuditVerdict, Finding, Message, Severity, ToolCall
from flightschool.reports import AuditedTask, EpisodePair, ReportData, ScanRow, render_report, write_report

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class _Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that elements close in order."""

    void = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def words(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(read(page).text))


def test_page_is_offline_and_holds_no_script(sample: ReportData) -> None:
    page = render_report(sample)
    reader = read(page)
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert "img" not in reader.tags
    names = {name for name, _ in reader.attributes}
    assert not names & {"src", "href", "action", "srcset"}
    assert not [name for name in names if name.startswith("on")]
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    assert len(page.encode()) < 300_000


def test_main_result_is_worded_with_interval_and_judgement(sample: ReportData) -> None:
    text = words(render_report(sample))
    assert "went from 0.06 to 0.94" in text
    assert "+0.88, 95 % interval +0.80 to +0.94, 128 tasks. The interval leaves out zero." in text
    assert "−1,280" in text


def test_interval_that_includes_zero_is_called_unreliable(sample: ReportData) -> None:
    first = sample.headlines[0]
    assert first.gain is not None
    weak = msgspec.structs.replace(first, gain=msgspec.structs.replace(first.gain, value=0.02, low=-0.03, high=0.07))
    text = words(render_report(msgspec.structs.replace(sample, headlines=(weak,))))
    assert "this is not a reliable change" in text
    assert "leaves out zero." not in text.split("Ranges are")[0]


def test_strata_overrides_faults_and_commands_are_all_told(sample: ReportData) -> None:
    text = words(render_report(sample))
    for stratum in ("lookup and act", "needs approval", "several assets"):
        assert text.count(stratum) == 2
    assert text.count("trained") >= 4
    assert "Rules of the house were overridden" in text
    assert "m.keller" in text
    assert "injected fault: timeout after write" in text
    assert "denied by rule no-scrapping" in text
    assert "flightschool train train.toml --seed 3" in text
    assert "0 rows, expected 1: ('P-117', 'high')" in text


def test_text_of_other_peoples_making_is_escaped(sample: ReportData) -> None:
    pair = sample.examples[0]
    attempt = msgspec.structs.replace(pair.before, messages=(Message(role=EVIL, content=EVIL),), detail=EVIL)
    evil = msgspec.structs.replace(
        sample,
        title=EVIL,
        run=EVIL,
        notes=(EVIL,),
        machine={EVIL: EVIL},
        commands=(EVIL,),
        examples=(EpisodePair(title=EVIL, instruction=EVIL, before=attempt, after=pair.after),),
        headlines=(msgspec.structs.replace(sample.headlines[0], label=EVIL),),
        strata=(msgspec.structs.replace(sample.strata[0], stratum=EVIL, weather=EVIL),),
        overrides=(msgspec.structs.replace(sample.overrides[0], reason=EVIL),),
    )
    page = render_report(evil)
    reader = read(page)
    assert "script" not in reader.tags
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert "".join(reader.text).count(EVIL) >= 10


def test_same_data_give_same_bytes_and_survive_the_store(sample: ReportData) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(sample), type=ReportData)
    assert render_report(kept) == render_report(sample)


def test_empty_report_renders_without_empty_sections() -> None:
    page = render_report(ReportData(title="Nothing yet", run="r0"))
    assert "<h2>" not in page
    assert "This report holds no measurement." in page


def test_long_messages_and_many_examples_are_cut_with_a_count(sample: ReportData) -> None:
    pair = sample.examples[0]
    long = msgspec.structs.replace(pair.before, messages=(Message(role="assistant", content="x" * 5000),))
    many = tuple(EpisodePair(title=f"p{i}", instruction="i", before=long, after=pair.after) for i in range(15))
    text = words(render_report(msgspec.structs.replace(sample, examples=many)))
    assert "3,500 more characters" in text
    assert "3 more pairs are in the store." in text


def test_worked_example_is_left_out_of_the_transcript(sample: ReportData) -> None:
    pair = sample.examples[0]
    shown = (
        Message(role="user", content="worked example"),
        Message(role="assistant", content="example answer"),
        *pair.before.messages[1:],
    )
    before = msgspec.structs.replace(pair.before, messages=shown)
    text = words(
        render_report(msgspec.structs.replace(sample, examples=(msgspec.structs.replace(pair, before=before),)))
    )
    assert "example answer" not in text
    assert "I opened the work order." in text


def test_write_is_whole_or_not_at_all(sample: ReportData, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    write_report(sample, out)
    assert out.read_text(encoding="utf-8") == render_report(sample)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    blocked = tmp_path / "taken"
    blocked.mkdir()
    with pytest.raises(OSError, match="taken"):
        write_report(sample, blocked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "taken"]


def test_findings_are_told_with_what_was_played_and_the_mend(sample: ReportData) -> None:
    call = ToolCall(id="1", name="close_order", arguments={"order": "W-1"})
    played = (Message(role="assistant", tool_calls=(call,)), Message(role="assistant", content="Done."))
    found = Finding(
        probe="junk", severity=Severity.BARRING, what="junk passes", actions=played, mend="check values, not presence"
    )
    audited = (AuditedTask(task="t-1", verdict=AuditVerdict.EXPLOITABLE, findings=(found,)),)
    text = words(render_report(msgspec.structs.replace(sample, audited=audited)))
    assert "played: close_order {'order': 'W-1'}; 'Done.'" in text
    assert "mend: check values, not presence" in text


def test_the_scan_of_attempts_and_the_subject_of_a_waiver_stand_on_the_page(sample: ReportData) -> None:
    row = ScanRow(
        rule="canary-passed",
        severity=Severity.BARRING,
        what="a task that no honest policy can pass was passed",
        evidence="t-9",
        num_attempts=2,
        attempt="run:g1:0:0",
    )
    waived = msgspec.structs.replace(sample.overrides[0], subject="desk: 1 task(s) are not sound: t-1 (flaky)")
    text = words(render_report(msgspec.structs.replace(sample, scan=(row,), overrides=(waived,))))
    assert "canary-passed a task that no honest policy can pass was passed (2 attempts)" in text
    assert "for instance run:g1:0:0" in text
    assert "t-1 (flaky)" in text
    assert "Nothing was found." in words(render_report(msgspec.structs.replace(sample, scan=())))
    assert "Scan of the attempts" not in words(render_report(msgspec.structs.replace(sample, scan=None)))
