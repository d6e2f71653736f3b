"""A hostile hand in the workspace: one thing is edited, and what rests on it is refused by name.

Each case opens a copy of one measured workspace (an environment from traces, a frozen suite, two evaluations with their
attempts, one comparison that looked early), edits one thing in its database, and asks the verbs.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from flightschool.cli import main
from flightschool.digest import digest
from flightschool.environments import build_from_traces, save_environment
from flightschool.records import Message, Suite, ToolCall
from flightschool.store import Workspace
from flightschool.traces import RecordedCall, RecordedEpisode, TaskHint, TraceSet, save_traces

Run = Callable[..., Any]
Hand = Callable[["Db"], None]

DEEDS = ("cancel the order", "refund what was paid", "hold back the parcel", "rush by air", "split the load", "relabel")


class Db:
    """The workspace's database, as somebody who has read the code would edit it."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)

    def read(self, kind: str, key: str) -> Any:
        row = self.connection.execute("SELECT payload FROM records WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(row[0]))

    def write(self, kind: str, key: str, value: Any) -> None:
        payload = zstandard.ZstdCompressor(write_checksum=True).compress(msgspec.msgpack.encode(value))
        self.connection.execute("UPDATE records SET payload = ? WHERE kind = ? AND key = ?", (payload, kind, key))

    def edit(self, kind: str, key: str, **fields: Any) -> None:
        self.write(kind, key, {**self.read(kind, key), **fields})

    def keys(self, kind: str) -> list[str]:
        rows = self.connection.execute("SELECT key FROM records WHERE kind = ? ORDER BY key", (kind,)).fetchall()
        return [row[0] for row in rows]

    def entry(self, action: str, subject: str) -> str:
        return next(
            key
            for key in self.keys("log_entry")
            if (entry := self.read("log_entry", key))["action"] == action and entry["subject"] == subject
        )

    def close(self) -> None:
        self.connection.commit()
        self.connection.close()


def episode(deed: str, number: int, page: int | None = None) -> RecordedEpisode:
    verb, order = deed.split(maxsplit=1)[0], f"A{number}"
    arguments = {"order_id": order, "reason": f"wanted by the {verb} clerk, page {page or number}"}
    call = RecordedCall(turn=0, id="1", name=f"{verb}_order", arguments=arguments, text='"ok"', value="ok")
    asked = ToolCall(id="1", name=call.name, arguments=arguments)
    return RecordedEpisode(
        id=f"{verb}-{number}",
        source="test",
        messages=(
            Message(role="system", content="Do what is asked."),
            Message(role="user", content=f"Please {deed} of {order}, {verb} {verb}ing as the {verb} desk says."),
            Message(role="assistant", tool_calls=(asked,)),
            Message(role="tool", content='"ok"', tool_call_id="1"),
            Message(role="assistant", content="Done."),
        ),
        calls=(call,),
        stated_effects=(call.name,),
        hint=TaskHint(id=f"{verb}-{number}", family=verb, stratum="calm", actions=(asked,)),
        success=True,
    )


def traces(pages: dict[int, int]) -> TraceSet:
    """Twelve episodes; ``pages`` gives some of them another truth under the same words."""
    numbered = [(deed, 10 * i + n) for i, deed in enumerate(DEEDS) for n in (0, 1)]
    return TraceSet(format="test", episodes=tuple(episode(d, n, pages.get(n)) for d, n in numbered))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which everything is in order."""
    root = tmp_path_factory.mktemp("measured") / "space"
    with Workspace.create(root) as made, pytest.MonkeyPatch.context() as patch:
        save_traces(made.store, "june", traces({}))
        save_environment(made.store, build_from_traces(traces({}), "june"))
        patch.chdir(root)
        for words in (
            ("eval", "freeze", "june", "--name", "ride", "--fraction", "0.8", "--holdout", "0"),
            ("eval", "run", "ride", "--policy", "oracle", "--keep-states"),
            ("eval", "run", "ride", "--policy", "noop", "--keep-states"),
            ("eval", "compare", "ride", "noop", "oracle", "--early", "--look-every", "2"),
        ):
            assert main([*words, "--json"]) in (0, 1), words
    return root


@pytest.fixture
def tampered(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Hand], None]:
    """Takes a copy of the workspace, edits it by one hand, and goes there."""

    def done(hand: Hand) -> None:
        shutil.copytree(measured, tmp_path / "space")
        db = Db(tmp_path / "space" / ".flightschool" / "store.sqlite")
        hand(db)
        db.close()
        monkeypatch.chdir(tmp_path / "space")

    return done


# ------------------------------------------------------------------------------------------------ the hands


def suite_seed(db: Db) -> None:
    db.edit("suite", "ride", seed=1)


def suite_without_an_item(db: Db) -> None:
    tasks = dict(db.read("suite", "ride")["task_digests"])
    tasks.popitem()
    db.edit("suite", "ride", task_digests=tasks)


def suite_weight(db: Db) -> None:
    (share,) = db.read("suite", "ride")["strata"]
    db.edit("suite", "ride", strata=[{**share, "weight": 0.5}])


def design_limits(db: Db) -> None:
    rules = db.read("suite-design", "ride")["rules"]
    db.edit("suite-design", "ride", rules={**rules, "max_retries": 9})


def design_gone(db: Db) -> None:
    db.connection.execute("DELETE FROM records WHERE kind = 'suite-design'")


def grader(db: Db) -> None:
    """Another truth in the environment's content, kept under its own right digest."""
    record = db.read("environments", "june")
    row = db.connection.execute("SELECT payload FROM blobs WHERE digest = ?", (record["content"],)).fetchone()
    content = zstandard.ZstdDecompressor().decompress(row[0])
    assert b"page 10" in content
    other = content.replace(b"page 10", b"page 19")
    payload = zstandard.ZstdCompressor(write_checksum=True).compress(other)
    db.connection.execute("INSERT INTO blobs VALUES (?, ?)", (digest(other), payload))
    db.edit("environments", "june", content=digest(other))


def grader_in_place(db: Db) -> None:
    """The same, under the old digest."""
    record = db.read("environments", "june")
    row = db.connection.execute("SELECT payload FROM blobs WHERE digest = ?", (record["content"],)).fetchone()
    content = zstandard.ZstdDecompressor().decompress(row[0]).replace(b"page 10", b"page 19")
    payload = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    db.connection.execute("UPDATE blobs SET payload = ? WHERE digest = ?", (payload, record["content"]))


def one_raw_byte(db: Db) -> None:
    """A bit of the disk: nothing that anyone would write."""
    (payload,) = db.connection.execute("SELECT payload FROM records WHERE kind = 'suite'").fetchone()
    flipped = payload[:40] + bytes([payload[40] ^ 1]) + payload[41:]
    db.connection.execute("UPDATE records SET payload = ? WHERE kind = 'suite'", (flipped,))


def score(db: Db) -> None:
    first, *others = db.read("evaluation", "eval-0002")["items"]
    db.edit("evaluation", "eval-0002", items=[{**first, "success": True}, *others])


def score_and_its_log_entry(db: Db) -> None:
    """As ``score``, by somebody who also writes the new digest into the log."""
    from flightschool.evaluation import EvaluationRun

    score(db)
    run = msgspec.convert(db.read("evaluation", "eval-0002"), EvaluationRun)
    key = db.entry("evaluate", "eval-0002")
    entry = db.read("log_entry", key)
    db.edit("log_entry", key, detail={**entry["detail"], "digest": run.digest})


def result_of_another(db: Db) -> None:
    db.write("evaluation", "eval-0002", db.read("evaluation", "eval-0001"))


def log_cut_short(db: Db) -> None:
    last = db.entry("evaluate", "eval-0002")
    db.connection.execute("DELETE FROM records WHERE kind = 'log_entry' AND key >= ?", (last,))


def log_with_a_hole(db: Db) -> None:
    db.connection.execute(
        "DELETE FROM records WHERE kind = 'log_entry' AND key = ?", (db.entry("design suite", "ride"),)
    )


def log_rewritten(db: Db) -> None:
    db.edit("log_entry", db.entry("freeze suite", "ride"), at="2020-01-01T00:00:00.000+00:00")


def attempt(db: Db) -> None:
    key = next(key for key in db.keys("attempt") if key.startswith("eval-0002"))
    db.edit("attempt", key, seed=7)


def end_state(db: Db) -> None:
    key = next(key for key in db.keys("attempt") if key.startswith("eval-0002"))
    kept = db.read("attempt", key)["end_state"]
    payload = zstandard.ZstdCompressor(write_checksum=True).compress(b"{}")
    assert db.connection.execute("UPDATE blobs SET payload = ? WHERE digest = ?", (payload, kept)).rowcount == 1


def early_look(db: Db) -> None:
    looks = db.read("early-comparison", "early-0001")["looks"]
    db.edit("early-comparison", "early-0001", looks=[{**looks[0], "low": -1.0}, *looks[1:]])


RUN = ("eval", "run", "ride", "--policy", "oracle")
COMPARE = ("eval", "compare", "ride", "eval-0002", "eval-0001")
REGRADE = ("eval", "regrade", "eval-0002")
EXPORT = ("eval", "export", "eval-0002", "--format", "inspect", "--out", "out.eval")
EXPOSURE = ("eval", "exposure", "ride")
UNTOUCHED: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("hand", "refused", "what"),
    [
        (suite_seed, (RUN, COMPARE), "is not the one that the audit log saw frozen"),
        (suite_without_an_item, (RUN, COMPARE), "is not the one that the audit log saw frozen"),
        (suite_weight, (RUN, COMPARE), "is not the one that the audit log saw frozen"),
        (design_limits, (RUN, COMPARE), "the design of suite 'ride' is not the one"),
        (design_gone, (RUN, COMPARE), "the design of suite 'ride' is not the one"),
        (grader, (RUN, COMPARE, REGRADE), "environment 'june' is no longer what was kept"),
        (grader_in_place, (RUN, COMPARE, REGRADE), "the bytes do not have the digest they are kept under"),
        (one_raw_byte, (RUN, COMPARE), "suite 'ride'"),
        (score, (COMPARE, REGRADE, EXPORT), "is not what was measured: its record was changed"),
        (score_and_its_log_entry, (RUN, COMPARE, REGRADE), "the audit log is broken at entry"),
        (result_of_another, (COMPARE, REGRADE), "is not what was measured"),
        (log_cut_short, (COMPARE, REGRADE), "was never measured, as far as the audit log knows"),
        (log_with_a_hole, (RUN, COMPARE, REGRADE), "the audit log is broken at entry"),
        (log_rewritten, (RUN, COMPARE, REGRADE), "its content was changed"),
        (attempt, (REGRADE, EXPORT), "is not what was measured: its record was changed"),
        (early_look, (EXPOSURE,), "is not what was measured"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_one_edited_thing_is_refused_by_name(
    run: Run, tampered: Callable[[Hand], None], hand: Hand, refused: tuple[tuple[str, ...], ...], what: str
) -> None:
    tampered(hand)
    for words in refused:
        found = run(*words, "--json")
        assert found.code == 2, words
        assert what in found.error["what"], (words, found.error)
        assert found.error["mend"], words


def test_another_truth_in_an_environment_built_anew_is_named(run: Run, tampered: Callable[[Hand], None]) -> None:
    """No hand in the database: the traces were corrected and the environment built again, as anybody may."""
    tampered(lambda _: None)
    with Workspace.find() as opened:
        suite = opened.store.get("suite", "ride", Suite)
        number = next(int(task.rpartition("-")[2]) for task in suite.task_digests)
        save_environment(opened.store, build_from_traces(traces({number: 99}), "june"))
    for words in (RUN, COMPARE, REGRADE):
        found = run(*words, "--json")
        assert found.code == 2, words
        assert found.error["what"].startswith("changed since the freeze: "), found.error
        named = [part for part in found.error["what"].split(", ") if part.startswith("truth of ")]
        assert [part.rpartition("-")[2] for part in named] == [str(number)]


def test_an_end_state_that_was_exchanged_gives_no_grade(run: Run, tampered: Callable[[Hand], None]) -> None:
    """What cannot be judged is missing and named: neither the old grade nor a failure."""
    tampered(end_state)
    found = run(*REGRADE, "--json")
    assert found.code == 1
    (lost,) = found.json["lost"].values()
    assert "the bytes do not have the digest they are kept under" in lost


def test_without_a_hand_all_of_it_works(run: Run, tampered: Callable[[Hand], None]) -> None:
    tampered(lambda _: None)
    for words in (RUN, COMPARE, REGRADE, EXPORT, EXPOSURE):
        assert run(*words, "--json").code == 0, words
