"""Grammars: which tokens may come next, and what of the probability they hold.

Under a grammar the behaviour policy is μ(a) = π(a) / Σ_{s ∈ S} π(s) over the allowed tokens S, and the trainer must
renormalise the current policy over the same S, else every ratio is off by the kept mass. S is not recorded token by
token: it follows from the grammar's text and the tokens before, so a completion names the grammar by digest
(``grammar_support``), the attempt carries its text, and the trainer walks the same grammar over the same tokens.

The masks are llguidance's (extra ``grammar``; the library behind the structured output of vLLM and SGLang). It is
imported when a grammar is first used, and nothing else of this package needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from flightschool.engines.grammar_text import grammar_support
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import InputError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

__all__ = ["GrammarBook", "GrammarWalk", "unpack"]

_KEPT_GRAMMARS = 64


class GrammarBook:
    """Compiled grammars of one tokenizer.

    Args:
        tokenizer: of the model; its first stop token ends a completion that the grammar accepts.
        vocab: rows of the model's output, of which the tokenizer may use fewer.
    """

    def __init__(self, tokenizer: ChatTokenizer, vocab: int) -> None:
        self.vocab = vocab
        self.end_token_id = tokenizer.stop_token_ids[0]
        self._text = tokenizer.backend_text
        self._compiled = functools.lru_cache(maxsize=_KEPT_GRAMMARS)(self._compile)

    def walk(self, grammar: str, token_ids: Sequence[int] = ()) -> GrammarWalk:
        """At the beginning of a completion, or after its first tokens.

        Raises:
            InputError: llguidance is not installed, the grammar is broken, or it does not accept the tokens.
        """
        walk = GrammarWalk(self._compiled(grammar).deep_copy(), self.vocab)
        for token in token_ids:
            walk.advance(token)
        return walk

    @functools.cached_property
    def _tokenizer(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise InputError(
                "constrained sampling needs llguidance",
                where="grammar",
                expected="the extra 'grammar' installed",
                mend="pip install 'flightschool[grammar]', or sample on the full support",
            ) from None
        try:
            return LLTokenizer(self._text, n_vocab=self.vocab, eos_token=self.end_token_id)
        except Exception as error:  # noqa: BLE001 - the library raises bare exceptions on tokenizers it cannot read
            raise InputError(
                f"llguidance cannot read this tokenizer: {error}",
                where="grammar",
                expected="a byte-level or byte-fallback tokenizer",
                mend="sample on the full support",
            ) from None

    def _compile(self, grammar: str) -> LLMatcher:
        tokenizer = self._tokenizer
        from llguidance import LLMatcher

        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise InputError(
                f"not a grammar: {matcher.get_error().strip().splitlines()[0]}",
                where=grammar_support(grammar),
                expected="a grammar in llguidance's Lark dialect",
                mend="correct it, or sample on the full support",
            )
        return matcher


class GrammarWalk:
    """One completion's way through a grammar."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher = matcher
        self._vocab = vocab

    def packed(self) -> bytes:
        """Allowed tokens, a bit each, lowest bit first.

        Raises:
            InputError: the grammar allows nothing here.
        """
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error() or not any(mask):
            raise InputError(
                f"a grammar came to a dead end: {self._matcher.get_error() or 'no token is allowed'}",
                where="grammar",
                expected="a grammar that always goes on or ends",
                mend="correct the grammar",
            )
        return mask

    def mask(self) -> Tensor:
        """Allowed tokens, ``[V]`` bool on the CPU."""
        return unpack(np.frombuffer(self.packed(), dtype=np.uint8)[None], self._vocab)[0]

    def advance(self, token: int) -> None:
        """Go on after ``token``.

        Raises:
            InputError: the grammar does not allow it here.
        """
        if not self._matcher.consume_token(token):
            raise InputError(
                f"token {token} is not allowed by the grammar",
                where="grammar",
                expected="a completion that was sampled under it",
                mend="check that grammar and tokenizer are those that sampled",
            )


def unpack(packed_UB: np.ndarray, vocab: int) -> Tensor:
    """Rows of bits as bool, ``[U, V]``."""
    bits_UV = np.unpackbits(packed_UB, axis=1, count=vocab, bitorder="little")
    return torch.from_numpy(bits_UV.astype(bool))
