"""The teacher's desk: what it asks, how it maps answers back, and what it does when nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.training.conftest import MakeGroup, MakeSpans

from flightschool.config import load_settings, parse_settings
from flightschool.engines.scoring import TeacherSettings
from flightschool.engines.settings import EngineSettings
from flightschool.errors import ConfigError, InfrastructureError, TokenContractError
from flightschool.records import EpisodeGroup, SpanKind, TokenSpan, VersionRun
from flightschool.stations import JobSettings, control_settings
from flightschool.training import TrainingSettings
from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.teaching import TeacherDesk, check_asked, scored_paths

Answer = Callable[[tuple[int, ...], int], tuple[float, ...]]
SETTINGS = TrainingSettings(algorithm="distill", max_restarts=2, restart_pause_s=0.0)


def by_token(token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
    """Each token has its own number: a misplaced answer is seen."""
    return tuple(-token / 100.0 for token in token_ids_T[start:])


class Teacher:
    name = "teacher"

    def __init__(self, answer: Answer = by_token) -> None:
        self.asked: list[tuple[tuple[int, ...], int]] = []
        self.at_once = self.most_at_once = 0
        self._answer = answer

    async def logprobs(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        self.asked.append((token_ids_T, start))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self._answer(token_ids_T, start)

    async def aclose(self) -> None:
        pass


def desk(teacher: Teacher, tmp_path: Path, concurrency: int = 2, untrained: tuple[str, ...] = ()) -> TeacherDesk:
    incidents = Incidents(tmp_path / "incidents.jsonl")
    return TeacherDesk(teacher, SETTINGS, concurrency=concurrency, incidents=incidents, untrained=untrained)


def completion(id_: int, parent: int, tokens: tuple[int, ...]) -> TokenSpan:
    return TokenSpan(
        id=id_,
        parent=parent,
        kind=SpanKind.COMPLETION,
        token_ids_T=tokens,
        logprobs_T=(-0.5,) * len(tokens),
        versions=(VersionRun(step=0, count=len(tokens)),),
    )


async def test_every_turn_is_scored_in_one_question_an_attempt(
    make_group: MakeGroup, make_spans: MakeSpans, tmp_path: Path
) -> None:
    spans = make_spans(prompt=(1, 2, 3), turns=(((4, 5), (6,)), ((7,), (8, 9))))
    teacher = Teacher()
    found = await desk(teacher, tmp_path).score(make_group([1.0, None, 0.0], [spans] * 3))
    assert teacher.asked == [((1, 2, 3, 4, 5, 6, 7), 3)] * 2, "nothing behind the last sampled token, nobody lost"
    assert found == {f"g0:{i}": {1: (-0.04, -0.05), 3: (-0.07,)} for i in (0, 2)}


async def test_branches_are_questions_of_their_own_and_shared_spans_count_once(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    prompt = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1, 2))
    read = TokenSpan(id=4, parent=2, kind=SpanKind.OBSERVATION, token_ids_T=(9, 9))
    spans = (prompt, completion(1, 0, (3, 4)), completion(2, 1, (5,)), completion(3, 1, (6, 7)), read)
    teacher = Teacher()
    found = await desk(teacher, tmp_path).score(make_group([1.0], [spans]))
    assert sorted(teacher.asked) == [((1, 2, 3, 4, 5), 4), ((1, 2, 3, 4, 6, 7), 2)]
    assert found == {"g0:0": {1: (-0.03, -0.04), 2: (-0.05,), 3: (-0.06, -0.07)}}


async def test_no_more_questions_at_once_than_allowed(
    make_group: MakeGroup, make_spans: MakeSpans, tmp_path: Path
) -> None:
    teacher = Teacher()
    asks = desk(teacher, tmp_path, concurrency=3)
    await asyncio.gather(*(asks.score(make_group([1.0] * 4, name=f"g{i}")) for i in range(4)))
    assert len(teacher.asked) == 16
    assert teacher.most_at_once == 3


async def test_a_canary_is_nobodys_lesson(make_group: MakeGroup, tmp_path: Path) -> None:
    teacher = Teacher()
    assert await desk(teacher, tmp_path, untrained=("t",)).score(make_group([1.0])) == {}
    assert teacher.asked == []


async def test_a_teacher_that_fails_is_asked_again_and_then_given_up(make_group: MakeGroup, tmp_path: Path) -> None:
    left = [2]

    def flaky(token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        left[0] -= 1
        if left[0] >= 0:
            raise InfrastructureError("the vllm server did not answer")
        return by_token(token_ids_T, start)

    assert (await desk(Teacher(flaky), tmp_path).score(make_group([1.0])))["g0:0"][1] == (-0.04, -0.05)
    kinds = [incident.kind for incident in read_incidents(tmp_path / "incidents.jsonl")]
    assert kinds == ["teacher", "teacher"]
    left[0] = 3
    with pytest.raises(InfrastructureError, match="did not score a sequence in 3 tries: the vllm server") as caught:
        await desk(Teacher(flaky), tmp_path).score(make_group([1.0]))
    assert "--resume" in caught.value.mend


async def test_an_answer_of_another_length_is_not_retried(make_group: MakeGroup, tmp_path: Path) -> None:
    teacher = Teacher(lambda token_ids_T, start: by_token(token_ids_T, start)[1:])
    with pytest.raises(TokenContractError, match="gave 3 log-probabilities for 4 tokens"):
        await desk(teacher, tmp_path).score(make_group([1.0]))
    assert len(teacher.asked) == 1


@pytest.mark.parametrize(
    ("change", "what"), [({"temperature": 0.7}, "temperature 0.7"), ({"support": "grammar:x"}, "restricted support")]
)
def test_what_a_teacher_cannot_judge_raises(
    change: dict[str, object], what: str, make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    spans = make_spans()
    changed = (spans[0], msgspec.structs.replace(spans[1], **change), *spans[2:])
    group: EpisodeGroup = make_group([1.0], [changed])
    with pytest.raises(TokenContractError, match=what):
        list(scored_paths(group.members[0]))


# ------------------------------------------------------------------------------------------------ configuration


def test_teacher_and_training_ask_for_one_another() -> None:
    teacher = TeacherSettings(model="x")
    check_asked(SETTINGS, teacher, None)
    check_asked(TrainingSettings(), None, None)
    with pytest.raises(ConfigError, match="no teacher is named"):
        check_asked(SETTINGS, None, None)
    with pytest.raises(ConfigError, match="nothing asks it"):
        check_asked(TrainingSettings(), teacher, None)
    with pytest.raises(ConfigError, match="what a grammar constrained"):
        check_asked(SETTINGS, teacher, EngineSettings(constrain_calls=True))


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"training": {"algorithm": "distill"}}, "[teacher]"),
        ({"teacher": {"model": "x"}}, "no table [teacher]"),
        (
            {"teacher": {"model": "x"}, "training": {"distill_weight": 0.1}, "engine": {"constrain_calls": True}},
            "grammar",
        ),
        (
            {
                "teacher": {"model": "x"},
                "training": {"algorithm": "distill"},
                "evaluation": {"negative_control_steps": 2},
            },
            "negative_control_steps",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(table: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(table, JobSettings, where="x.toml")
    assert word in str(caught.value)
    assert caught.value.what.startswith("wrong value of 'teacher'")


def test_the_control_asks_no_teacher() -> None:
    table = {
        "teacher": {"model": "x"},
        "training": {"distill_weight": 0.1},
        "evaluation": {"negative_control_steps": 2},
    }
    assert not control_settings(parse_settings(table, JobSettings, where="x.toml")).asks_teacher


def test_paths_of_a_teacher_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    from flightschool.cli.train import rooted

    table = {"teacher": {"model": "big"}, "training": {"distill_weight": 0.1}}
    found = rooted(parse_settings(table, JobSettings, where="x.toml"), tmp_path).teacher
    assert found is not None
    assert found.model == str(tmp_path / "big")


def test_the_recipe_is_a_configuration() -> None:
    settings = load_settings(Path(__file__).parents[3] / "recipes" / "distill.toml", JobSettings)
    assert settings.teacher is not None
    assert settings.training.asks_teacher
    assert 0.0 < settings.screening.threshold < 0.01, "admits nearly every task, and screening takes no 0"
