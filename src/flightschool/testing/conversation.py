"""One conversation with a server, the same live and replayed: everything that does not depend on time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from flightschool.engines.served import ServedEngine
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import WeightsVersion

# "<|im_start|>user\nName three parts of a pump.<|im_end|>\n<|im_start|>assistant\n" and a second turn, for SmolLM2
PROMPT = (1, 4093, 198, 5820, 1296, 2391, 282, 253, 6680, 30, 2, 198, 1, 520, 9531, 198)
TURN = (2, 198, 1, 4093, 198, 3528, 827, 540, 47, 2, 198, 1, 520, 9531, 198)
STOPS = (2, 0)


@dataclass(frozen=True)
class Heard:
    """What came back."""

    greedy: Generation
    again: Generation
    sampled: Generation
    same_seed: Generation
    tempered: Generation
    second_turn: Generation
    after_update: Generation
    kept: Generation


def ask(session: str, tokens: Sequence[int] = PROMPT, new: int = 24, **changes: object) -> GenerationRequest:
    """A request of the conversation."""
    plain = {"session": session, "token_ids_T": tuple(tokens), "max_new_tokens": new, "stop_token_ids": STOPS}
    return GenerationRequest(**(plain | changes))  # type: ignore[arg-type]


def version(step: int) -> WeightsVersion:
    """What the conversation calls weights."""
    return WeightsVersion(run="recorded", incarnation=0, step=step, digest=f"weights-{step}")


async def converse(engine: ServedEngine, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> Heard:
    """Hold the conversation.

    Args:
        engine: of a server that has just been started.
        old: the weights that it was started with.
        new: others.
    """
    await engine.connect()
    await engine.load_weights(version(0), old)
    greedy = await engine.generate(ask("greedy", temperature=0.0))
    again = await engine.generate(ask("again", temperature=0.0))
    sampled = await engine.generate(ask("sampled", seed=3))
    same_seed = await engine.generate(ask("same", seed=3))
    tempered = await engine.generate(ask("tempered", seed=4, temperature=0.7))
    whole = (*PROMPT, *sampled.token_ids_T, *TURN[sampled.finish == "stop" :])
    second_turn = await engine.generate(ask("sampled", whole, seed=5))
    await engine.load_weights(version(1), new)
    after_update = await engine.generate(ask("new", temperature=0.0))
    kept = await engine.generate(ask("sampled", (*whole, *second_turn.token_ids_T, *TURN), seed=6, new=4))
    return Heard(greedy, again, sampled, same_seed, tempered, second_turn, after_update, kept)
