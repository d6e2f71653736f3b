"""Other seeds, other words, other names: the same desk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import flightschool.environments.desk as desk_package
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.environments.desk.families import load_strata
from flightschool.errors import ConfigError
from flightschool.records import Task
from flightschool.tools import ToolBoundary

PARAPHRASE = Path(desk_package.__file__).parent / "wording_paraphrase.toml"


@pytest.fixture(scope="module")
def base() -> DeskEnvironment:
    return build_environment()


@pytest.fixture(scope="module")
def reworded() -> DeskEnvironment:
    return build_environment(wording=PARAPHRASE)


@pytest.fixture(scope="module")
def renamed() -> DeskEnvironment:
    return build_environment(rename={"get_alert": "fetch_alert", "assign_order": "hand_over"})


def everything_but_states(desk: DeskEnvironment) -> str:
    return msgspec.json.encode(
        [list(desk.tasks()), list(desk.tools()), [desk.reference(task.id) for task in desk.tasks()]]
    ).decode()


def solves(desk: DeskEnvironment) -> None:
    """Every oracle call is shown, permitted and accepted by the world that the task opens."""

    async def play(task: Task, boundary: ToolBoundary) -> None:
        for call in desk.reference(task.id).oracle:
            (result,) = await boundary.call([call])
            assert not result.is_error, (task.id, call, result)

    for task in desk.tasks()[::3]:
        world = desk.open(task)
        asyncio.run(play(task, ToolBoundary(world, desk.tools(), desk.permissions(task), shown=task.tools)))
        world.close()


def test_equal_arguments_give_equal_digests_and_wording_and_names_count(
    base: DeskEnvironment, reworded: DeskEnvironment, renamed: DeskEnvironment
) -> None:
    assert base.digest == build_environment().digest
    assert len({base.digest, reworded.digest, renamed.digest}) == 3


@pytest.mark.parametrize("seed", [1, 77])
def test_another_seed_changes_ids_and_values_and_stays_solvable(seed: int, base: DeskEnvironment) -> None:
    other = build_environment(seed=seed)
    solves(other)
    assert base.digest != other.digest
    same = [t.id for t in base.tasks() if t.instruction == other.task(t.id).instruction]
    assert same == []
    example_values = {m.content for task in other.tasks() for m in task.example if m.role == "user"}
    assert not example_values & {task.instruction for task in other.tasks()}


def test_the_paraphrase_rewords_every_two_step_family_and_nothing_else(
    base: DeskEnvironment, reworded: DeskEnvironment
) -> None:
    other = reworded
    for family in load_strata()[0].families:
        one, two = base.task(f"{family.name}-0"), other.task(f"{family.name}-0")
        assert one.instruction != two.instruction
        assert one.guidance != two.guidance
        assert one.example[0].content != two.example[0].content
        assert one.example[1:] == two.example[1:]
        assert len(two.instruction.split()) <= 25
        assert base.reference(one.id) == other.reference(two.id)


def test_a_renamed_tool_is_renamed_everywhere(renamed: DeskEnvironment) -> None:
    text = everything_but_states(renamed)
    assert "fetch_alert" in text
    assert '"get_alert"' not in text
    assert '"assign_order"' not in text
    solves(renamed)


@pytest.mark.parametrize(
    ("rename", "problem"),
    [
        ({"get_alarm": "x"}, "get_alert"),
        ({"get_alert": "get_asset"}, "share a name"),
        ({"get_alert": "no name"}, "not a tool name"),
        ({"decline": "refuse"}, "keeps its name"),
    ],
)
def test_names_that_cannot_be_used(rename: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        build_environment(rename=rename)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[nobody]\nsay = "x"\n', "unknown family"),
        ('[part_bought]\nsay = "Buy something."\n', "other slots"),
        ('[part_bought]\nsay = "Buy {part} for {price}."\n', "other slots"),
        ('[part_bought]\nsing = "la"\n', "unknown key"),
        ("part_bought = 3\n", "not a table"),
        ("[part_bought\n", "not valid TOML"),
    ],
)
def test_wordings_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "wording.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        build_environment(wording=path)
