"""The session: the only writer of sampled spans.

It stands between a harness, which speaks messages, and an engine, which speaks token ids. What was sampled is kept
exactly as sampled (see ``transcript`` for how histories are continued). The HTTP gateway wraps this same object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flightschool.engines.requests import check_generation, continuation, joined
from flightschool.errors import InfrastructureError
from flightschool.protocols import Engine, Generation, GenerationRequest, Tokenizer
from flightschool.records import EndReason, Message, SpanKind, TokenSpan, ToolSpec
from flightschool.rollouts.harness import EpisodeEndError
from flightschool.rollouts.routes import RouteBook
from flightschool.rollouts.transcript import Sampling, Transcript, Turn

__all__ = ["Session"]


class Session(Transcript):
    """One attempt's conversation with an engine. Implements ``ModelEndpoint``.

    Args:
        key: session key given to the engine; unique among running attempts.
        engine: token-exact generation.
        tokenizer: text to ids with chat roles.
        sampling: temperature, limits, virtual speed.
        seed: the attempt's sampling seed; each turn derives its own.
        keep_routing: keeps the experts that were chosen (bytes → digest); None: they are not kept.
    """

    def __init__(
        self,
        key: str,
        engine: Engine,
        tokenizer: Tokenizer,
        sampling: Sampling,
        seed: int,
        keep_routing: Callable[[bytes], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, sampling, engine.max_context)
        self._keep_routing = keep_routing
        self._routes = RouteBook()
        self._key = key
        self._engine = engine
        self._seed = seed
        self.num_sampled = 0
        """Tokens that the engine has returned, also where no completion was made of them."""
        self.grammars: dict[str, str] = {}
        """Support of restricted completions → text of the grammar."""

    def close(self) -> None:
        """Free the engine's caches for this session."""
        for lane in range(max(self._num_lanes, 1)):
            self._engine.release(self._engine_key(lane))

    def spans(self) -> tuple[TokenSpan, ...]:
        """The forest as written so far, with the experts that were chosen if they are kept."""
        spans = super().spans()
        return spans if self._keep_routing is None else self._routes.referring(spans, self._keep_routing)

    def _engine_key(self, lane: int) -> str:
        """Branches under way at the same time need caches of their own."""
        return f"{self._key}#{lane}" if lane else self._key

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """Sample the next assistant message. Requests of one attempt may overlap; a cancelled one leaves no completion.

        Raises:
            EpisodeEndError: the context is full, the completion was cut, or the engine died.
            MalformedCallError: the completion tried to call a tool and failed at it.
        """
        turn = self._render(list(messages), tuple(tools))
        room = self._room(turn)
        if room < 1:
            raise EpisodeEndError(EndReason.CONTEXT_FULL, f"{len(turn.context_T)} tokens")
        grammar = self._dialect.grammar(tools) if self._sampling.constrained else ""
        generation = await self._generate(turn, min(room, self._sampling.max_new_tokens), grammar)
        if grammar:
            self.grammars[generation.support] = grammar
        self._write_completion(turn, generation)
        if generation.routing_T:
            self._routes.note(self._path(turn.leaf), generation.routing_T)
        self._advance(turn.num_new, len(generation.token_ids_T))
        return self._read(turn, generation.token_ids_T, ended=generation.finish == "stop")

    async def _generate(self, turn: Turn, max_new_tokens: int, grammar: str) -> Generation:
        request = GenerationRequest(
            session=self._engine_key(turn.lane),
            token_ids_T=tuple(turn.context_T),
            max_new_tokens=max_new_tokens,
            stop_token_ids=self._tokenizer.stop_token_ids,
            temperature=self._sampling.temperature,
            seed=self._seed + turn.number,
            prefix_length=turn.prefix_length,
            grammar=grammar,
        )
        try:
            generation = await self._sampled(request)
            while generation.finish == "interrupted":
                generation = joined(generation, await self._sampled(continuation(request, generation)))
        except InfrastructureError as error:
            raise EpisodeEndError(EndReason.ENGINE_ERROR, str(error)) from error
        check_generation(generation, f"session {request.session}")
        return generation

    async def _sampled(self, request: GenerationRequest) -> Generation:
        generation = await self._engine.generate(request)
        self.num_sampled += len(generation.token_ids_T)
        return generation

    def _write_completion(self, turn: Turn, generation: Generation) -> None:
        self._write(
            turn,
            SpanKind.COMPLETION,
            generation.token_ids_T,
            logprobs_T=generation.logprobs_T,
            versions=generation.versions,
            kv_step=generation.kv_step,
            temperature=self._sampling.temperature,
            support=generation.support,
            log_kept_mass_T=generation.log_kept_mass_T,
        )
