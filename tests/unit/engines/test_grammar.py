from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from flightschool.engines.folders import LoadedModel
from flightschool.engines.grammar import GrammarBook
from flightschool.engines.sampling import restrict, sample
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.torch_engine import TorchEngine
from flightschool.errors import InputError
from flightschool.protocols import GenerationRequest


def test_masks_allow_what_goes_on_and_the_end_where_it_may_end(tokenizer: ChatTokenizer) -> None:
    book = GrammarBook(tokenizer, 300)
    walk = book.walk('start: "the" | "use"')
    texts = {tokenizer.decode([token]) for token in walk.mask().nonzero().squeeze(1).tolist()}
    assert texts == {"t", "th", "the", "u", "us", "use"}
    walk.advance(tokenizer.encode("the")[0])
    assert walk.mask().nonzero().squeeze(1).tolist() == [book.end_token_id]


def test_a_walk_goes_on_after_tokens_and_refuses_others(tokenizer: ChatTokenizer) -> None:
    book = GrammarBook(tokenizer, 300)
    (the,) = tokenizer.encode("the")
    assert book.walk('start: "the end"', [the]).mask().sum() == 1  # the space
    with pytest.raises(InputError, match=f"token {the} is not allowed"):
        book.walk('start: "use"', [the])


def test_broken_grammars_are_named(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(InputError, match="not a grammar"):
        GrammarBook(tokenizer, 300).walk("start: nowhere")


def test_without_llguidance_the_extra_is_named(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InputError, match="needs llguidance") as caught:
        GrammarBook(tokenizer, 300).walk('start: "the"')
    assert "flightschool[grammar]" in caught.value.mend


def test_the_kept_mass_by_hand() -> None:
    """π = (1/8, 2/8, 5/8); allowed are the first two: they keep 3/8, and the second has 2/3 of that."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log()
    (kept,) = restrict(logits, [1.0], [torch.tensor([True, True, False])])
    assert kept == pytest.approx(torch.log(torch.tensor(3 / 8)).item(), abs=1e-6)
    (token,), (logprob,) = sample(logits, [1.0], [0.5])
    assert token == 1
    assert logprob == pytest.approx(torch.log(torch.tensor(2 / 3)).item(), abs=1e-6)


def test_allowed_tokens_that_are_hopeless_are_still_drawn_exactly() -> None:
    """Their weights underflow beside the best token's: they must be taken relative to the best *allowed* one."""
    logits = torch.tensor([[0.0, -200.0, -201.0]])
    (kept,) = restrict(logits, [1.0], [torch.tensor([False, True, True])])
    (token,), (logprob,) = sample(logits, [1.0], [0.999])
    assert kept == pytest.approx(-200.0 + 0.31326, abs=1e-4)
    assert token == 2
    assert logprob == pytest.approx(-1.31326, abs=1e-4)


async def test_a_dead_end_fails_its_request_alone(
    loaded: LoadedModel, make_loaded: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TorchEngine(loaded)
    request = GenerationRequest(
        session="bad", token_ids_T=(5, 6), max_new_tokens=9, stop_token_ids=(2,), grammar='start: "the"'
    )
    walk = engine._book.walk(request.grammar)
    monkeypatch.setattr(type(walk), "packed", lambda self: (_ for _ in ()).throw(InputError("a dead end")))
    with pytest.raises(InputError, match="dead end"):
        await engine.generate(request)
    free = await engine.generate(GenerationRequest(session="s", token_ids_T=(5,), max_new_tokens=3, stop_token_ids=()))
    assert len(free.token_ids_T) == 3
