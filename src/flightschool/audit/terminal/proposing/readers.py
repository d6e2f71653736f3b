"""Who is asked: a proposer and a checker, two roles that one model or two may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

from flightschool.audit.terminal.proposing.answers import (
    Opinion,
    Proposal,
    Source,
    read_opinion,
    read_proposals,
    read_source,
)
from flightschool.audit.terminal.proposing.dossier import Dossier
from flightschool.audit.terminal.proposing.questions import (
    PROMPT_VERSION,
    Question,
    Tried,
    ask_opinion,
    ask_proposals,
    ask_source,
)
from flightschool.errors import InfrastructureError
from flightschool.models import ChatModel, client_of, usual_key_env

__all__ = ["TIMEOUT_S", "Readers", "open_readers"]

AnswerT = TypeVar("AnswerT")
RULES: Final = 2
"""Raised when what becomes of opinions changes."""
TRIES: Final = 3
TIMEOUT_S: Final = 600.0
"""Seconds of one request: a model that thinks takes minutes."""
PROGRAM_TOKENS: Final = 16_384
OPINION_TOKENS: Final = 2_048


class Readers:
    """Asks the models, each in a thread of its own. A context manager: leaving it ends the threads, not the clients.

    Args:
        proposer: proposes programs; should be a strong one.
        checker: judges end states; another model than the proposer makes its opinion an independent one.
        name: who both are, for the record and the journal.
        at_once: requests under way at a time.
    """

    def __init__(self, proposer: ChatModel, checker: ChatModel, *, name: str, at_once: int = 8) -> None:
        self._proposer = proposer
        self._checker = checker
        self._threads = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="readers")
        self.at_once = at_once
        self.name = name

    @property
    def mode(self) -> str:
        """What an audit by these readers depends on."""
        return f"readers {PROMPT_VERSION}.{RULES} {self.name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def proposals(self, dossier: Dossier, tried: tuple[Tried, ...] = ()) -> tuple[Proposal, ...]:
        """Programs worth running.

        Raises:
            InfrastructureError: the model does not answer, or in no form that can be read.
        """

        def read(question: Question, reply: str) -> tuple[Proposal, ...] | str:
            del question
            return read_proposals(reply)

        return await self._ask(self._proposer, lambda: ask_proposals(dossier, tried), read, PROGRAM_TOKENS)

    async def opinion(self, dossier: Dossier, candidate: str, *, swapped: bool) -> Opinion:
        """Whether what the task's solution left, and what a program left, are right. Raises as ``proposals``."""

        def read(question: Question, reply: str) -> Opinion | str:
            return read_opinion(reply, question.fence, question.reference_is)

        return await self._ask(
            self._checker, lambda: ask_opinion(dossier, candidate, swapped=swapped), read, OPINION_TOKENS
        )

    async def source(self, dossier: Dossier, program: str, claim: str) -> tuple[Source, str]:
        """Whether a program reads the answer somewhere, and why. Raises as ``proposals``."""

        def read(question: Question, reply: str) -> tuple[Source, str] | str:
            return read_source(reply, question.fence)

        return await self._ask(self._checker, lambda: ask_source(dossier, program, claim), read, OPINION_TOKENS)

    async def _ask(
        self,
        model: ChatModel,
        make: Callable[[], Question],
        read: Callable[[Question, str], AnswerT | str],
        max_tokens: int,
    ) -> AnswerT:
        problem = ""
        for number in range(TRIES):
            question = make()  # a new fence each time

            def ask(question: Question = question, number: int = number) -> str:
                said = model.complete(
                    question.messages, max_tokens=max_tokens, temperature=0.0 if number == 0 else 0.7, seed=number
                )
                return said.text if said.finish != "content_filter" else ""

            answer = read(question, await asyncio.get_running_loop().run_in_executor(self._threads, ask))
            if not isinstance(answer, str):
                return answer
            problem = answer
        raise InfrastructureError(
            f"the model gave no usable reply in {TRIES} tries: {problem}",
            where=self.name,
            expected="the form that the request asks for",
            mend="choose a model that follows the form",
        )


@contextmanager
def open_readers(
    proposer: str,
    checker: str = "",
    *,
    timeout_s: float = TIMEOUT_S,
    at_once: int = 8,
    through: Callable[[ChatModel], ChatModel] = lambda model: model,
) -> Iterator[Readers | None]:
    """Readers by their endpoints (``openai:URL#MODEL``, ``anthropic:URL#MODEL``); None where no proposer is named.

    Args:
        proposer: proposes programs.
        checker: weighs what came of them; empty: the proposer's model has both roles.
        timeout_s: seconds of one request.
        at_once: requests under way at a time.
        through: what stands between, for instance to keep what is said.

    Raises:
        InputError: no endpoint of that form, or no key in the environment.
    """
    if not proposer:
        yield None
        return
    with ExitStack() as stack:
        names = (proposer, checker or proposer)
        first, second = (
            through(stack.enter_context(client_of(name, key_env=usual_key_env(name), timeout_s=timeout_s)))
            for name in names
        )
        models = [name.partition("#")[2] for name in names]
        told = f"proposer {models[0]}, checker {models[1]}"
        yield stack.enter_context(Readers(first, second, name=told, at_once=at_once))
