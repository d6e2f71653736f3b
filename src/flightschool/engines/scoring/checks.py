"""Whether a teacher can teach: known before anything is trained, and for servers before anything is loaded.

Token ids must mean the same to both. Of a folder, and of a server whose tokenizer lies at hand, vocabularies are
compared by digest. A server is asked instead: it encodes a text made of pieces from all over the student's vocabulary,
and the control tokens of turns; another vocabulary cuts such a text elsewhere or numbers it otherwise.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from flightschool.engines.opening import longest_context, model_sizes
from flightschool.engines.scoring.scorer import Scorer, ServedScorer
from flightschool.engines.scoring.settings import TeacherSettings
from flightschool.engines.served.scores import LEAST_LOGPROB
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ConfigError, InputError, TokenContractError

__all__ = ["check_order", "check_teacher"]

_MOST_PIECES = 2000
_CLOSE = 0.1
"""Mean difference in nats between two scorings of the same tokens that batches and low precision may cause."""


def check_teacher(settings: TeacherSettings, student: Path, longest: int) -> None:
    """Raise what keeps the teacher from teaching this student. Nothing of a folder's weights is read.

    Args:
        settings: of the teacher.
        student: model folder.
        longest: tokens of the longest episode.

    Raises:
        ConfigError: another vocabulary, too short a context, or no key in the environment.
        ModelFolderError: a folder is broken.
        InfrastructureError: the server does not answer.
        TokenContractError: its log-probabilities are not in order.
    """
    tokenizer = ChatTokenizer.from_folder(student)
    longest = min(longest, longest_context(student))
    if settings.is_served:
        asyncio.run(_check_server(ServedScorer(settings), settings, tokenizer, longest))
        return
    folder = Path(settings.model)
    rows = model_sizes(folder)[0]
    _same_vocabulary(tokenizer, folder, "teacher.model")
    if rows < tokenizer.num_ids:
        raise _wrong(f"the teacher has {rows} rows for {tokenizer.num_ids} token ids", "teacher.model", "one an id")
    _long_enough(longest_context(folder), longest, "teacher.model")


async def check_order(scorer: Scorer, tokenizer: ChatTokenizer) -> None:
    """Score a short conversation whole and in part: values must be there, differ, and not depend on what follows.

    Raises:
        TokenContractError: they are not in order.
    """
    opening = (*tokenizer.turn("user", "Name three parts of a pump."), *tokenizer.open_assistant())
    probe = (*opening, *tokenizer.encode("A seal, a shaft and a valve."))
    whole = await scorer.logprobs(probe, 1)
    part = await scorer.logprobs(probe[: len(opening)], 1)
    late = await scorer.logprobs(probe, len(opening))
    faults = [
        (len(whole) != len(probe) - 1, f"{len(whole)} values for {len(probe) - 1} tokens"),
        (len(set(whole)) < 2, "all values are equal"),
        (max(whole, default=0.0) <= LEAST_LOGPROB, "every token is ruled out"),
        (_gap(whole, part) > _CLOSE, "values of the same tokens change with what stands behind them"),
        (_gap(whole[len(opening) - 1 :], late) > _CLOSE, "values change with where the scoring begins"),
    ]
    wrong = next((what for fault, what in faults if fault), "")
    if wrong:
        raise TokenContractError(
            f"the teacher's log-probabilities are not in order: {wrong}",
            where=scorer.name,
            expected="log π of each token given those before it, at temperature 1",
            mend="see [teacher] in docs/training.md for how the server must be started",
        )


def _gap(some: tuple[float, ...], others: tuple[float, ...]) -> float:
    """Mean difference over what both have, a gap of one nat at most by token: single unlikely tokens are noisy."""
    pairs = list(zip(some, others, strict=False))
    return sum(min(1.0, abs(a - b)) for a, b in pairs) / max(1, len(pairs))


async def _check_server(
    scorer: ServedScorer, settings: TeacherSettings, tokenizer: ChatTokenizer, longest: int
) -> None:
    try:
        await scorer.wire.check_health(scorer.http)
        limit = await scorer.wire.limits(scorer.http)
        if limit is not None:
            _long_enough(limit, longest + 1, "teacher.url")  # vLLM cannot score without generating a token
        if settings.tokenizer is not None:
            _same_vocabulary(tokenizer, settings.tokenizer, "teacher.tokenizer")
        else:
            await _ask_vocabulary(scorer, tokenizer)
        await check_order(scorer, tokenizer)
    finally:
        await scorer.aclose()


async def _ask_vocabulary(scorer: ServedScorer, tokenizer: ChatTokenizer) -> None:
    stride = max(1, tokenizer.num_ids // _MOST_PIECES)
    pieces = (tokenizer.decode([token]).strip() for token in range(0, tokenizer.num_ids, stride))
    text = " ".join(piece for piece in pieces if piece and "�" not in piece)
    control = "".join(tokenizer.control_texts)
    try:
        told = [await scorer.wire.tokenize(scorer.http, asked) for asked in (text, control)]
    except InputError as error:
        raise ConfigError(
            f"the teacher's server does not say how it encodes text: {error.what}",
            where="teacher.url",
            expected="a server with /tokenize, or its tokenizer at hand",
            mend="set teacher.tokenizer to a folder with the server's tokenizer.json",
        ) from error
    if told != [tokenizer.encode_with_control(asked) for asked in (text, control)]:
        raise _other_vocabulary("encodes the same text with other token ids", "teacher.url")


def _same_vocabulary(tokenizer: ChatTokenizer, folder: Path, where: str) -> None:
    if ChatTokenizer.from_folder(folder).vocabulary_digest != tokenizer.vocabulary_digest:
        raise _other_vocabulary("has another vocabulary", where)


def _other_vocabulary(what: str, where: str) -> ConfigError:
    expected = "the same tokenizer: the teacher scores the very token ids"
    return _wrong(f"the teacher {what} than the model that is trained", where, expected)


def _long_enough(context: int, longest: int, where: str) -> None:
    if context < longest:
        raise _wrong(f"the teacher takes {context} tokens, episodes may have {longest}", where, "a context as long")


def _wrong(what: str, where: str, expected: str) -> ConfigError:
    mend = "take a teacher of the same family, or lower training.max_context if only that is too long"
    return ConfigError(what, where=where, expected=expected, mend=mend)
