"""The trainer renormalises over the support that the engine drew from: with unchanged weights nothing differs."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.engines import CausalAttention, TorchEngine, load_model
from flightschool.engines.grammar import GrammarBook
from flightschool.engines.grammar_text import grammar_support
from flightschool.errors import TokenContractError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import SpanKind, TokenSpan
from flightschool.training.algorithms import LossShape
from flightschool.training.head import PackTensors, head_losses, score_all
from flightschool.training.loss import score_tokens
from flightschool.training.messages import TrainerSpec, TrainGroup, TrainMember
from flightschool.training.packing import pack_group
from flightschool.training.settings import TrainingSettings
from flightschool.training.shared_prefix import SharedPrefixAttention
from flightschool.training.trainer import TorchTrainer

PROMPT = (1, 50, 60, 70, 2)
CALL = 'start: "look " /[a-f]{1,4}/ | "done" | /[x-z]+/ "!"'


def test_scores_on_a_support_by_hand() -> None:
    """π = (1/8, 2/8, 5/8), the first two allowed: (1/3, 2/3), entropy −Σ p log p over the two."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log()
    scored = score_tokens(logits, torch.tensor([1]), torch.ones(1), torch.tensor([[True, True, False]]))
    assert float(scored.logprobs_M) == pytest.approx(math.log(2 / 3), abs=1e-6)
    assert scored.probabilities_MV.tolist()[0] == pytest.approx([1 / 3, 2 / 3, 0.0], abs=1e-6)
    assert scored.entropy == pytest.approx(math.log(3) / 3 + math.log(3 / 2) * 2 / 3, abs=1e-6)


def member(done: Generation, temperature: float, **changes: object) -> TrainMember:
    prompt = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=PROMPT)
    completion = TokenSpan(
        id=1,
        parent=0,
        kind=SpanKind.COMPLETION,
        token_ids_T=done.token_ids_T,
        logprobs_T=done.logprobs_T,
        versions=done.versions,
        support=done.support,
        log_kept_mass_T=done.log_kept_mass_T,
        temperature=temperature,
    )
    plain: dict[str, object] = {"grammars": {grammar_support(CALL): CALL}}
    return TrainMember(attempt="a", advantage=1.0, spans=(prompt, completion), **(plain | changes))  # type: ignore[arg-type]


async def sampled(folder: Path, seed: int, temperature: float, grammar: str = CALL) -> Generation:
    return await TorchEngine(load_model(folder)).generate(
        GenerationRequest(
            session="s",
            token_ids_T=PROMPT,
            max_new_tokens=12,
            stop_token_ids=(load_model(folder).tokenizer.stop_token_ids[0],),
            temperature=temperature,
            seed=seed,
            grammar=grammar,
        )
    )


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), temperature=st.sampled_from([0.4, 1.0, 1.7]))
def test_recomputed_log_probabilities_equal_the_behaviour_s_for_unchanged_weights(
    seed: int, temperature: float, tiny_folder: Path
) -> None:
    import asyncio

    done = asyncio.run(sampled(tiny_folder, seed, temperature))
    loaded = load_model(tiny_folder)
    (pack,) = pack_group(TrainGroup(id="g", members=(member(done, temperature),)), newest_step=0)
    targets = PackTensors.of(pack, torch.device("cpu"), GrammarBook(loaded.tokenizer, loaded.config.vocab))
    with torch.no_grad():
        tokens, positions = torch.tensor(pack.tokens_N), torch.tensor(pack.positions_N)
        hidden = loaded.model(tokens, positions, SharedPrefixAttention(pack))
    again = score_all(loaded.model.logits, hidden, targets)
    assert again.tolist() == pytest.approx(done.logprobs_T, abs=1e-5)
    full = score_all(loaded.model.logits, hidden, PackTensors.of(pack, torch.device("cpu")))
    assert (full - again).tolist() == pytest.approx(done.log_kept_mass_T, abs=1e-5)  # off by the kept mass, exactly


async def test_gradients_are_those_of_the_renormalised_policy(tiny_folder: Path) -> None:
    """Against autograd through a log-softmax over the allowed logits alone."""
    done = await sampled(tiny_folder, 3, 1.0)
    loaded = load_model(tiny_folder)
    book = GrammarBook(loaded.tokenizer, loaded.config.vocab)
    (pack,) = pack_group(TrainGroup(id="g", members=(member(done, 1.0),)), newest_step=0)
    hidden = loaded.model(
        torch.tensor(pack.tokens_N), torch.tensor(pack.positions_N), CausalAttention([pack.num_tokens])
    )
    leaf = hidden.detach().requires_grad_(True)
    head_losses(loaded.model.logits, leaf, PackTensors.of(pack, torch.device("cpu"), book), LossShape())

    plain = hidden.detach().requires_grad_(True)
    walk, total = book.walk(CALL), torch.zeros(())
    for target in pack.targets:
        logits = loaded.model.logits(plain[target.predictor])
        allowed = walk.mask()
        total = total - (logits[target.token_id] - logits[allowed].logsumexp(0))  # advantage 1, ratio and weight 1
        walk.advance(target.token_id)
    total.backward()  # type: ignore[no-untyped-call]
    assert plain.grad is not None
    torch.testing.assert_close(leaf.grad, plain.grad, atol=1e-5, rtol=1e-4)


def trainer(folder: Path, run_dir: Path) -> TorchTrainer:
    spec = TrainerSpec(
        run="r",
        incarnation=0,
        step=0,
        model=str(folder),
        run_dir=str(run_dir),
        weights="",
        settings=TrainingSettings(learning_rate=1e-3, max_new_tokens=12).model_dump_json(),
    )
    return TorchTrainer(spec)


async def test_a_constrained_group_trains_without_mismatch(tiny_folder: Path, tmp_path: Path) -> None:
    first, second = [await sampled(tiny_folder, seed, 1.0) for seed in (1, 2)]
    members = (member(first, 1.0), msgspec.structs.replace(member(second, 1.0), advantage=-1.0))
    station = trainer(tiny_folder, tmp_path)
    station.accumulate(TrainGroup(id="g", members=members))
    stats = station.step().stats
    assert stats.fresh_mismatch < 1e-5
    assert stats.grad_norm > 0.0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"grammars": {}}, "whose grammar is not known"),
        ({"grammars": {grammar_support(CALL): 'start: "other"'}}, "does not follow its grammar"),
    ],
)
async def test_restricted_completions_without_their_grammar_do_not_train(
    changes: dict[str, object], what: str, tiny_folder: Path, tmp_path: Path
) -> None:
    done = await sampled(tiny_folder, 1, 1.0)
    with pytest.raises(TokenContractError, match=what):
        trainer(tiny_folder, tmp_path).accumulate(TrainGroup(id="g", members=(member(done, 1.0, **changes),)))


@pytest.mark.parametrize("kept", [(), (0.5,) * 3, (math.nan,) * 3])
async def test_kept_masses_that_cannot_be_do_not_train(
    kept: tuple[float, ...], tiny_folder: Path, tmp_path: Path
) -> None:
    done = await sampled(tiny_folder, 1, 1.0)
    wrong = msgspec.structs.replace(done, log_kept_mass_T=kept)
    with pytest.raises(TokenContractError, match="kept mass"):
        trainer(tiny_folder, tmp_path).accumulate(TrainGroup(id="g", members=(member(wrong, 1.0),)))


async def test_a_full_support_that_lost_mass_does_not_train(tiny_folder: Path, tmp_path: Path) -> None:
    done = await sampled(tiny_folder, 1, 1.0, grammar="")
    wrong = msgspec.structs.replace(done, log_kept_mass_T=(-0.1,) * len(done.token_ids_T))
    with pytest.raises(TokenContractError, match="full support"):
        trainer(tiny_folder, tmp_path).accumulate(TrainGroup(id="g", members=(member(wrong, 1.0),)))
