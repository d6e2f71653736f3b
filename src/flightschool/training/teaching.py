"""The teacher's desk: a finished group comes in, log-probabilities of its sampled tokens go out. Imports no torch.

Each path of a span forest is one sequence; a completion that several paths share is scored once. At most
``concurrency`` sequences are scored at a time, whatever groups they are of. A server that fails is asked again, after
pauses that double; one that goes on failing ends the run, and nothing is lost: finished groups stand in the journal,
and what was said of them as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from flightschool.engines.scoring import Scorer, TeacherSettings, check_order, open_scorer
from flightschool.engines.settings import EngineSettings
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ConfigError, InfrastructureError, TokenContractError
from flightschool.records import Attempt, EpisodeGroup, SpanKind, TokenSpan
from flightschool.training.algorithms.distill import TeacherScores
from flightschool.training.dispatcher import pause_s
from flightschool.training.incidents import Incidents
from flightschool.training.settings import TrainingSettings

__all__ = ["ScoredPath", "TeacherDesk", "check_asked", "open_desk", "scored_paths"]


def check_asked(settings: TrainingSettings, teacher: TeacherSettings | None, engine: EngineSettings | None) -> None:
    """Refuse a teacher that nothing asks, a missing one, and one that cannot judge what the engine samples.

    Raises:
        ConfigError: one of these.
    """
    asks = settings.asks_teacher
    if asks != (teacher is not None):
        raise ConfigError(
            "no teacher is named" if asks else "a teacher is named and nothing asks it",
            where="teacher",
            expected="a table [teacher] together with algorithm = 'distill' or distill_weight above 0",
            mend="name one: kind, and model or url" if asks else "leave [teacher] out, or set training.distill_weight",
        )
    if asks and engine is not None and engine.constrain_calls:
        raise ConfigError(
            "a teacher cannot judge what a grammar constrained",
            where="engine.constrain_calls",
            expected="completions of the full support: a teacher's log-probabilities are not renormalised",
            mend="set constrain_calls = false",
        )


async def open_desk(
    teacher: TeacherSettings,
    settings: TrainingSettings,
    student: Path,
    incidents: Incidents,
    untrained: Collection[str],
) -> TeacherDesk:
    """A desk over the teacher of a configuration, whose log-probabilities were seen to be in order.

    Raises:
        ModelFolderError: its folder cannot be loaded.
        ConfigError: its server's key is not in the environment.
        InfrastructureError: its server does not answer.
        TokenContractError: its log-probabilities are not in order.
    """
    threads = settings.num_threads
    scorer = open_scorer(teacher, device=settings.device, dtype=settings.dtype, num_threads=threads)
    await check_order(scorer, ChatTokenizer.from_folder(student))
    return TeacherDesk(scorer, settings, concurrency=teacher.concurrency, incidents=incidents, untrained=untrained)


@dataclass(frozen=True)
class ScoredPath:
    """A sequence with the completions in it that are to be scored."""

    token_ids_T: tuple[int, ...]
    """From the root to the end of the last of them."""
    places: tuple[tuple[int, int, int], ...]
    """(span, its first token, one after its last) in the order of the path."""

    @property
    def start(self) -> int:
        """First token that is scored."""
        return self.places[0][1]


class TeacherDesk:
    """Scores groups. Lives as long as an incarnation; used on its event loop only.

    Args:
        scorer: the teacher.
        settings: of the run: how often a failed question is put again.
        concurrency: sequences at a time.
        incidents: are told of every question that is put again.
        untrained: tasks whose groups give no gradient: nobody asks about them.
    """

    def __init__(
        self,
        scorer: Scorer,
        settings: TrainingSettings,
        *,
        concurrency: int,
        incidents: Incidents,
        untrained: Collection[str] = (),
    ) -> None:
        self._scorer, self._settings, self._incidents = scorer, settings, incidents
        self._free = asyncio.Semaphore(concurrency)
        self._untrained = frozenset(untrained)

    async def score(self, group: EpisodeGroup) -> TeacherScores:
        """Log-probabilities of all sampled tokens of the attempts that may train.

        Raises:
            InfrastructureError: the teacher does not answer, time after time.
            TokenContractError: it answers something else, or a token was sampled otherwise than it can judge.
        """
        if group.task in self._untrained:
            return {}
        found: dict[str, dict[int, tuple[float, ...]]] = {member.id: {} for member in group.baseline}
        paths = [(member.id, path) for member in group.baseline for path in scored_paths(member)]
        questions = [asyncio.ensure_future(self._ask(path, attempt)) for attempt, path in paths]
        try:
            answers = await asyncio.gather(*questions)
        finally:  # when one fails, nobody waits for the others
            for question in questions:
                question.cancel()
        for (attempt, path), values in zip(paths, answers, strict=True):
            for span, first, end in path.places:
                found[attempt][span] = values[first - path.start : end - path.start]
        return found

    async def aclose(self) -> None:
        """Free the teacher."""
        await self._scorer.aclose()

    async def _ask(self, path: ScoredPath, attempt: str) -> tuple[float, ...]:
        tries = self._settings.max_restarts + 1
        for number in range(1, tries + 1):
            try:
                async with self._free:
                    values = await self._scorer.logprobs(path.token_ids_T, path.start)
                break
            except InfrastructureError as error:
                if number == tries:
                    raise self._gave_up(error, tries) from error
                self._incidents.add("teacher", f"{error.what}; asked again about {attempt}")
            await asyncio.sleep(pause_s(self._settings.restart_pause_s, number))
        if len(values) != len(path.token_ids_T) - path.start:
            raise TokenContractError(
                f"the teacher gave {len(values)} log-probabilities for {len(path.token_ids_T) - path.start} tokens",
                where=f"{self._scorer.name}, {attempt}",
                expected="one a token",
                mend="see the server's log; a proxy in between may cut answers",
            )
        return values

    def _gave_up(self, error: InfrastructureError, tries: int) -> InfrastructureError:
        return InfrastructureError(
            f"the teacher did not score a sequence in {tries} tries: {error.what}",
            where=self._scorer.name,
            expected="a teacher that answers",
            mend="start it again, then go on with --resume: finished groups are kept, and what it said of them",
        )


def scored_paths(attempt: Attempt) -> Iterator[ScoredPath]:
    """The sequences that hold every completion of an attempt, each completion in one of them.

    Raises:
        TokenContractError: a completion was sampled at another temperature or under a grammar, or nothing stands before
            it.
    """
    spans = {span.id: span for span in attempt.spans}
    with_children = {span.parent for span in attempt.spans}
    scored: set[int] = set()
    for leaf in attempt.spans:
        if leaf.id in with_children:
            continue
        tokens: tuple[int, ...] = ()
        places: list[tuple[int, int, int]] = []
        for span in _from_root(leaf, spans):
            if span.kind is SpanKind.COMPLETION and span.token_ids_T and span.id not in scored:
                _check(span, attempt.id, len(tokens))
                places.append((span.id, len(tokens), len(tokens) + len(span.token_ids_T)))
                scored.add(span.id)
            tokens += span.token_ids_T
        if places:
            yield ScoredPath(tokens[: places[-1][2]], tuple(places))


def _from_root(leaf: TokenSpan, spans: dict[int, TokenSpan]) -> list[TokenSpan]:
    path = [leaf]
    while path[-1].parent is not None:
        path.append(spans[path[-1].parent])
    return path[::-1]


def _check(span: TokenSpan, attempt: str, num_before: int) -> None:
    faults = [
        (span.temperature != 1.0, f"sampled at temperature {span.temperature:g}"),
        (span.support != "full", f"sampled on the restricted support {span.support!r}"),
        (num_before == 0, "nothing stands before the first sampled token"),
    ]
    wrong = next((what for fault, what in faults if fault), "")
    if wrong:
        raise TokenContractError(
            f"a teacher cannot judge this completion: {wrong}",
            where=f"{attempt} span {span.id}",
            expected="a prompt, then tokens of the full support at temperature 1, which is what a teacher scores",
            mend="set training.temperature = 1 and engine.constrain_calls = false",
        )
