"""Models behind a real HTTP server propose programs and weigh what came of them; what they claim is run."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.audit.labelled import judge, task, write

from flightschool.cli import main
from flightschool.models import LoopbackServer, Reply, chat_reply

pytestmark = [pytest.mark.integration, pytest.mark.long]

PICKS = task(
    "refuses-correct-work",
    "",
    "Write the names of two animals of /app/rows.csv whose amounts differ by exactly 10 to /app/pair.txt, one a line.",
    "printf 'ant\\nbee\\n' > /app/pair.txt\n",
    judge('[ "$(sort /app/pair.txt | tr "\\n" " ")" = "ant bee " ]'),
    shipped={"rows.csv": "name,amount\nant,10\nbee,20\ncat,31\ndog,41\n"},
)
"""Cat and dog are as right: what a second solver sees and no rule of forms does."""
RIGHT = """PROPOSAL right one-of-many
WHAT cat and dog, which differ by 10 as well
WHY "two animals whose amounts differ by exactly 10"
PROGRAM
printf 'cat\\ndog\\n' > /app/pair.txt
END PROPOSAL
"""
WRONG = """PROPOSAL wrong mutant-passes
WHAT nothing is written
WHY it may pass
PROGRAM
true
END PROPOSAL
"""
_STATE = re.compile(r"## End state ([AB])\n(.*?)(?=\n## |\Z)", re.DOTALL)


class Models:
    """Answers as a proposer and a checker would, and keeps what it was asked."""

    def __init__(self, proposals: str, judge: Callable[[str], str]) -> None:
        self.proposals = proposals
        self.judge = judge
        self.asked: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Reply:
        system, user = (message["content"] for message in request["messages"])
        if "You propose programs" in system:
            self.asked.append("second" if "second and last round" in user else "first")
            return chat_reply(self.proposals if self.asked.count("first") == 1 else "NO PROPOSALS")
        self.asked.append("opinion")
        fence = re.findall(r"The fence is ([0-9a-f]{32})", user)[0]
        states = {letter: self.judge(text) for letter, text in _STATE.findall(user)}
        return chat_reply(json.dumps({"fence": fence, **states, "alike": False, "why": "by the amounts"}))


def fair(state: str) -> str:
    """What is right of the pairs; of line ends and empty lines nothing is said."""
    if "| \n| " in state or "\\u000d" in state:
        return "unclear"
    return "right" if "ant" in state or "cat" in state else "hollow"


@pytest.fixture(autouse=True)
def in_a_folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(images.parent / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder, so that the first stage is made once."""
    folder = tmp_path_factory.mktemp("readers")
    write(folder / "pool" / "pair", PICKS.files)
    return folder


def told(places: Path, models: Callable[[dict[str, Any]], Reply] | None, *more: str) -> tuple[int, dict[str, Any]]:
    """The verb on the pool, with the models behind a server."""
    said = io.StringIO()
    arguments = ["audit", str(places / "pool"), "--repeats", "2", "--json", *more]
    with contextlib.redirect_stdout(said), contextlib.ExitStack() as stack:
        if models is not None:
            server = stack.enter_context(LoopbackServer(models))
            arguments += ["--proposer", server.reference("reader")]
        code = main(arguments)
    return code, json.loads(said.getvalue())


def test_right_work_that_was_refused_needs_claim_run_and_agreement(places: Path) -> None:
    code, plain = told(places, None)
    assert (code, plain["tasks"][0]["verdict"], plain["tasks"][0]["readers"]) == (0, "sound", "")

    models = Models(WRONG + RIGHT, fair)
    code, asked = told(places, models)
    row = asked["tasks"][0]
    assert (code, row["verdict"]) == (1, "refuses-correct-work")
    (found,) = [one for one in row["findings"] if one["severity"] == "barring"]
    assert (found["class"], found["confirmed"], found["confidence"]) == ("one-of-many", True, 0.9)
    assert "cat and dog" in found["what"]
    assert "by the amounts" in found["evidence"]["observed"]
    assert "printf 'cat" in found["evidence"]["script"]
    assert row["readers"] == "proposer reader, checker reader"
    assert models.asked == ["first", "opinion"], "the wrong program was refused, as it should be: nobody is asked"

    again = Models("", fair)
    _, kept = told(places, again)
    assert kept["tasks"][0]["findings"] == row["findings"]
    assert again.asked == [], "a finished audit asks no model again"


def test_the_checker_must_agree(places: Path) -> None:
    models = Models(RIGHT, lambda state: "right" if "ant" in state else "hollow")
    code, asked = told(places, models, "--checker", "openai:http://127.0.0.1:9/v1#none")
    assert code == 1
    assert asked["tasks"][0]["verdict"] == "unaudited", "a checker that does not answer acquits no one"
    assert "the readers could not be asked" in asked["tasks"][0]["unaudited_because"]


def test_models_that_speak_nonsense_acquit_no_one(places: Path) -> None:
    def nonsense(request: dict[str, Any]) -> Reply:
        del request
        return chat_reply("I am sorry.", model="other")

    said = io.StringIO()
    with contextlib.redirect_stdout(said), LoopbackServer(nonsense) as server:
        code = main(
            ["audit", str(places / "pool"), "--repeats", "2", "--json", "--proposer", server.reference("other")]
        )
    row = json.loads(said.getvalue())["tasks"][0]
    assert (code, row["verdict"]) == (1, "unaudited")
    assert "no usable reply in 3 tries" in row["unaudited_because"]


def test_in_a_workspace_an_audit_without_readers_clears_nothing(places: Path, tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert told(places, Models(RIGHT, fair))[0] == 1
    code, plain = told(places, None)
    row = plain["tasks"][0]
    assert (code, row["verdict"], row["readers"]) == (1, "refuses-correct-work", "proposer reader, checker reader")
    code, fresh = told(places, None, "--fresh")
    assert (code, fresh["tasks"][0]["readers"]) == (0, ""), "unless it is forgotten by name"


def test_repaired_copies_are_read_too(tmp_path: Path) -> None:
    files = dict(PICKS.files)
    files["environment/Dockerfile"] += "RUN printf 'ant\\nbee\\n' > /app/expected_answer.txt\n"
    write(tmp_path / "pool" / "leak", files)
    models = Models("NO PROPOSALS", fair)
    _, first = told(tmp_path, models, "--fix", "fixed")
    row = first["tasks"][0]
    assert row["verdict"] == "leaking"
    assert row["mended"]["verdict"] == "sound"
    assert models.asked[-1] == "first", "the copy is read as a sound task is"


def _refusal(*arguments: str) -> dict[str, Any]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["audit", *arguments, "--json"]) == 2
    return json.loads(said.getvalue())["error"]  # type: ignore[no-any-return]


def test_wrong_use(places: Path) -> None:
    pool = str(places / "pool")
    model = "openai:http://127.0.0.1:9/v1#m"
    assert _refusal(pool, "--checker", model)["where"] == "--checker"
    assert _refusal(pool, "--static", "--proposer", model)["where"] == "--proposer"
    assert _refusal("desk", "--proposer", model)["where"] == "--proposer, --checker"
    assert _refusal(pool, "--proposer", "gpt")["what"] == "not an endpoint of a text model"
    assert "OPENAI_API_KEY" in _refusal(pool, "--proposer", "openai:https://models.example/v1#m")["what"]
