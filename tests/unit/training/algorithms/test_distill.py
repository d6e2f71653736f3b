"""On-policy distillation: the formula, its bounds, and gradients against a plainly differentiated divergence."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.conftest import MakeGroup, MakeReward, MakeSpans

from flightschool.config import parse_settings
from flightschool.errors import ConfigError, FlightschoolError
from flightschool.records import Credit, GroupState, SpanKind
from flightschool.training import TrainingSettings
from flightschool.training.algorithms import TermWeights, algorithm_of
from flightschool.training.algorithms.distill import distill, order_room, teacher_terms, token_terms
from flightschool.training.crediting import Crediting
from flightschool.training.loss import policy_loss

values = st.floats(min_value=-12.0, max_value=0.0)


def test_the_example_of_the_module() -> None:
    mu, teacher = [math.log(0.5), math.log(0.5), math.log(0.25)], [math.log(0.25), math.log(0.5), -9999.0]
    terms, clipped = token_terms(teacher, mu, clip=5.0)
    assert terms == pytest.approx([math.log(0.5), 0.0, -5.0])
    assert clipped == [False, False, True]
    terms, _ = token_terms(teacher, mu, clip=5.0, discount=0.5)
    assert terms == pytest.approx([-1.943, -2.5, -5.0], abs=1e-3)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=12), st.floats(min_value=0.1, max_value=8.0))
def test_terms_are_bounded_and_point_to_the_teacher(rows: list[tuple[float, float]], clip: float) -> None:
    teacher, mu = zip(*rows, strict=True)
    terms, clipped = token_terms(teacher, mu, clip=clip)
    assert all(abs(term) <= clip for term in terms)
    assert clipped == [abs(a - b) > clip for a, b in rows]
    assert all((term > 0) == (a > b) and (term < 0) == (a < b) for term, (a, b) in zip(terms, rows, strict=True))
    swapped, _ = token_terms(mu, teacher, clip=clip)
    assert swapped == [-term for term in terms]


def test_one_scored_attempt_trains_and_lost_ones_do_not(make_group: MakeGroup) -> None:
    found = distill(make_group([0.0, None, None]), TermWeights())
    assert (found.state, [credit.attempt for credit in found.credits]) == (GroupState.COMPLETE, ["g0:0"])
    assert distill(make_group([None, None]), TermWeights()).state is GroupState.TOO_FEW
    assert distill(make_group([1.0, 1.0]), TermWeights()).state is GroupState.COMPLETE, "never flat"


# ------------------------------------------------------------------------------------------------ gradients


def gradient(logits_SV: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor, **of: torch.Tensor) -> torch.Tensor:
    """Of the package's loss, weighed, on one token for each state: what the trainer would do."""
    leaf = logits_SV.detach().clone().requires_grad_(True)
    logprobs = torch.log_softmax(leaf, dim=1).gather(1, tokens[:, None])[:, 0]
    terms, _ = token_terms(of["teacher"].tolist(), of["mu"].tolist(), clip=1e9)
    settings = TrainingSettings(algorithm="distill", correction="is")
    loss, _ = policy_loss(
        logprobs, logprobs, of["mu"], torch.tensor(terms, dtype=torch.float64), algorithm_of(settings).shape
    )
    slope = torch.autograd.grad(loss, logprobs, retain_graph=True)[0]
    (found,) = torch.autograd.grad(logprobs, leaf, grad_outputs=slope * weights)
    return found


@pytest.mark.parametrize("stale", [False, True], ids=["on the policy", "under older weights"])
@pytest.mark.parametrize("seed", range(3))
def test_the_expected_gradient_is_that_of_the_reverse_divergence(stale: bool, seed: int) -> None:
    """Every token of a small vocabulary, weighed by the probability with which μ samples it: no estimate is left.

    Without the shape's k1 cost the stale case would also push away from μ; a check below holds that it does.
    """
    torch.manual_seed(seed)
    size = 7
    policy, teacher = torch.randn(1, size, dtype=torch.float64), torch.randn(1, size, dtype=torch.float64)
    behaviour = policy + 0.5 * torch.randn(1, size, dtype=torch.float64) if stale else policy
    mu, log_teacher = torch.log_softmax(behaviour, 1)[0], torch.log_softmax(teacher, 1)[0]
    tokens = torch.arange(size)
    found = gradient(policy.expand(size, -1), tokens, mu.exp(), mu=mu, teacher=log_teacher).sum(0)

    leaf = policy.clone().requires_grad_(True)
    log_policy = torch.log_softmax(leaf, 1)[0]
    divergence = (log_policy.exp() * (log_policy - log_teacher)).sum()
    (exact,) = torch.autograd.grad(divergence, leaf)
    torch.testing.assert_close(found, exact[0], atol=1e-12, rtol=1e-9)

    log_policy = torch.log_softmax(leaf, 1)[0]
    plain = -(log_policy.exp().detach() * (log_teacher - mu) * log_policy).sum()
    (others,) = torch.autograd.grad(plain, leaf)
    assert torch.allclose(others, exact, atol=1e-6) is not stale


def test_sampled_tokens_give_the_estimate_written_plainly() -> None:
    """−Σ w_t (log π_T − log π_θ) ∇log π_θ over sampled tokens, by autograd alone."""
    torch.manual_seed(0)
    policy, teacher, behaviour = (torch.randn(9, 5, dtype=torch.float64) for _ in range(3))
    tokens = torch.randint(0, 5, (9,))
    mu, log_teacher = (torch.log_softmax(x, 1).gather(1, tokens[:, None])[:, 0] for x in (behaviour, teacher))
    found = gradient(policy, tokens, torch.ones(9, dtype=torch.float64), mu=mu, teacher=log_teacher)
    leaf = policy.clone().requires_grad_(True)
    logprobs = torch.log_softmax(leaf, 1).gather(1, tokens[:, None])[:, 0]
    weight, advantage = (logprobs - mu).exp().detach(), (log_teacher - logprobs).detach()
    (exact,) = torch.autograd.grad(-(weight * advantage * logprobs).sum(), leaf)
    torch.testing.assert_close(found, exact, atol=1e-12, rtol=1e-9)


# ------------------------------------------------------------------------------------------------ beside rewards


@given(
    st.lists(st.tuples(st.booleans(), st.lists(values, min_size=4, max_size=4)), min_size=2, max_size=5),
    st.floats(min_value=0.01, max_value=1.0),
)
def test_no_token_of_a_correct_member_falls_to_one_of_another(
    rows: list[tuple[bool, list[float]]], weight: float
) -> None:
    from tests.unit.training.conftest import _group, _spans

    spans = [_spans(turns=(((4, 5), (6,)), ((7, 8), ())))] * len(rows)
    group = _group([float(correct) for correct, _ in rows], spans)
    scores = {f"g0:{i}": {1: tuple(row[:2]), 3: tuple(row[2:])} for i, (_, row) in enumerate(rows)}
    settings = TrainingSettings(algorithm="dr_grpo", distill_weight=weight)
    found = Crediting(settings).credit(group, scores)
    assert found.train is not None
    kinds: dict[bool, list[float]] = {True: [], False: []}
    for member, (correct, _) in zip(found.train.members, rows, strict=True):
        kinds[correct] += [member.advantage + own for terms in member.token_advantages.values() for own in terms]
    if kinds[True] and kinds[False]:
        assert min(kinds[True]) > max(kinds[False])


def test_bounds_stop_two_directions_and_leave_the_others() -> None:
    credits_ = [Credit(attempt="good", advantage=0.4, terms={}), Credit(attempt="bad", advantage=-0.4, terms={})]
    assert order_room(credits_, {}, frozenset({"good"})) == pytest.approx(0.2)
    assert order_room(credits_, {"bad": {0: 0.4}}, frozenset({"good"})) == pytest.approx(0.1)
    assert order_room(credits_, {}, frozenset({"good", "bad"})) == math.inf
    assert order_room(credits_, {}, frozenset({"bad"})) == 0.0, "wrong above right already: nothing makes it worse"


def test_terms_are_clamped_by_the_room(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    spans = make_spans(turns=(((4, 5), ()),), logprob=-2.0)
    group = make_group([1.0, 0.0, None], [spans, spans, spans])
    scores = {f"g0:{i}": {1: (-1.0, -9999.0 if i else -3.0)} for i in range(3)}
    found = teacher_terms(group, scores, weight=0.5, clip=4.0, correct=frozenset({"g0:0"}), room=0.2)
    assert found.tokens == {"g0:0": {1: (0.5, -0.2)}, "g0:1": {1: (0.2, -2.0)}}
    assert found.sums.num_tokens == 4
    assert found.sums.num_clipped == 3, "a token counts once"
    assert found.sums.reverse_kl == pytest.approx(9999.0 + 1.0 - 4.0)


def test_order_is_kept_within_each_weather(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """Clean ±.5, storm ⅓, ⅓, −⅔: a quarter of a gap of 1 in both, while across them there would be less."""
    spans = make_spans(turns=(((4, 5), ()),), logprob=-2.0)
    group = make_group([1.0, 0.0, 1.0, 1.0, 0.0], [spans] * 5)
    members = tuple(
        msgspec.structs.replace(member, noise="clean" if place < 2 else "storm")
        for place, member in enumerate(group.members)
    )
    settings = TrainingSettings(algorithm="dr_grpo", process_weight=0.0, distill_weight=1.0)
    scores = {member.id: {1: (-6.0, -0.5)} for member in members}
    found = Crediting(settings).credit(msgspec.structs.replace(group, members=members), scores)
    assert found.train is not None
    assert [member.advantage for member in found.train.members] == pytest.approx([0.5, -0.5, 1 / 3, 1 / 3, -2 / 3])
    lowered = [member.token_advantages[1] for member in found.train.members]
    assert lowered[0] == lowered[2] == lowered[3] == pytest.approx((-0.25, 1.5))
    assert lowered[1] == lowered[4] == pytest.approx((-4.0, 0.25))


def test_a_flat_group_trains_on_the_teacher_alone(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    spans = make_spans(turns=(((4, 5), ()),), logprob=-2.0)
    group = make_group([0.0, 0.0], [spans, spans])
    scores = {f"g0:{i}": {1: (-1.0, -3.0)} for i in range(2)}
    found = Crediting(TrainingSettings(distill_weight=0.5)).credit(group, scores)
    assert found.credits.state is GroupState.COMPLETE
    assert found.train is not None
    assert [dict(m.token_advantages) for m in found.train.members] == [{1: (0.5, -0.5)}] * 2
    plain = Crediting(TrainingSettings()).credit(group)
    dapo = Crediting(TrainingSettings(algorithm="dapo", distill_weight=0.5)).credit(group, scores)
    watched = Crediting(TrainingSettings(distill_weight=0.5), untrained=["t"]).credit(group, {})
    assert [row.train for row in (plain, dapo, watched)] == [None] * 3


def test_the_reward_is_measured_only(make_group: MakeGroup, make_reward: MakeReward, make_spans: MakeSpans) -> None:
    spans = make_spans(turns=(((4, 5), ()),), logprob=-2.0)
    scores = {f"g0:{i}": {1: (-1.0, -9999.0)} for i in range(3)}
    settings = TrainingSettings(algorithm="distill")
    trained = []
    for rewards in ([1.0, 0.0, None], [0.0, 1.0, None]):
        found = Crediting(settings).credit(make_group(rewards, [spans] * 3), scores)
        assert found.train is not None
        trained.append([(m.attempt, m.advantage, dict(m.token_advantages)) for m in found.train.members])
    assert trained[0] == trained[1]
    assert trained[0] == [(f"g0:{i}", 0.0, {1: (1.0, -5.0)}) for i in range(2)]
    with pytest.raises(FlightschoolError, match="teacher was not asked"):
        Crediting(settings).credit(make_group([1.0, 0.0], [spans] * 2))


def test_shuffled_rewards_silence_the_teacher(make_group: MakeGroup) -> None:
    settings = TrainingSettings(distill_weight=0.5, shuffle_rewards=True)
    found = Crediting(settings).credit(make_group([1.0, 0.0]))
    assert found.train is not None
    assert all(not m.token_advantages for m in found.train.members)
    assert algorithm_of(settings).shape.kl.weight == 0.0


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"algorithm": "distill", "turn_weight": 0.1}, "turn_weight"),
        ({"algorithm": "distill", "latency_weight": 0.1}, "latency_weight"),
        ({"algorithm": "distill", "distill_weight": 0.1}, "distill_weight"),
        ({"algorithm": "distill", "trained_members": 2}, "trained_members"),
        ({"algorithm": "distill", "shuffle_rewards": True}, "shuffle_rewards"),
        ({"algorithm": "distill", "temperature": 0.7}, "temperature 1"),
        ({"distill_weight": 0.1, "initial_temperature": 0.5}, "temperature 1"),
        ({"distill_weight": 0.1, "kl_weight": 0.1}, "kl_weight"),
        ({"distill_weight": 0.1, "algorithm": "reinforce_pp"}, "distill_weight"),
        ({"distill_clip": 0.0}, "distill_clip"),
    ],
)
def test_what_cannot_work_with_a_teacher_is_refused(table: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(table, TrainingSettings, where="x.toml")
    assert word in str(caught.value)


def test_a_token_trains_with_its_own_advantage(make_spans: MakeSpans) -> None:
    from flightschool.errors import TokenContractError
    from flightschool.training.messages import TrainGroup, TrainMember
    from flightschool.training.packing import pack_group

    spans = make_spans(turns=(((4, 5), (6,)), ((7,), ())))
    member = TrainMember(attempt="a", advantage=1.0, spans=spans, token_advantages={1: (0.25, -0.5)})
    (pack,) = pack_group(TrainGroup(id="g", members=(member,)), newest_step=0)
    assert [(row.token_id, row.advantage) for row in pack.targets] == [(4, 1.25), (5, 0.5), (7, 1.0)]
    assert [span.kind for span in spans].count(SpanKind.COMPLETION) == 2
    short = TrainMember(attempt="a", advantage=1.0, spans=spans, token_advantages={1: (0.25,)})
    with pytest.raises(TokenContractError, match="1 advantages for 2 tokens"):
        pack_group(TrainGroup(id="g", members=(short,)), newest_step=0)
