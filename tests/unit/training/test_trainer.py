from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from tests.trained import trainer_spec
from torch import Tensor

from flightschool.engines import CausalAttention, Transformer, TransformerConfig, load_model
from flightschool.errors import InfrastructureError, StoreError, TokenContractError
from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.algorithms import ALGORITHMS, CORRECTIONS, KlTerm, LossShape
from flightschool.training.checkpoints import read_checkpoint
from flightschool.training.folders import RunFolder
from flightschool.training.head import PackTensors, head_losses
from flightschool.training.kept import kept_members, read_kept
from flightschool.training.loss import Members, policy_loss
from flightschool.training.messages import Manifest, TrainGroup, TrainMember
from flightschool.training.packing import pack_group
from flightschool.training.publisher import WeightsReader
from flightschool.training.shared_prefix import SharedPrefixAttention
from flightschool.training.trainer import TorchTrainer

MakeSpans = Callable[..., tuple[TokenSpan, ...]]


def random_group(seed: int = 0, size: int = 4, version: int = 0) -> TrainGroup:
    """A shared prompt of 11 tokens, two turns of random lengths, an edited history, and a branch."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 300, (count,), generator=generator).tolist())

    def completion(id_: int, parent: int, count: int) -> TokenSpan:
        logprobs = tuple((-5.7 + 0.3 * torch.randn(count, generator=generator)).tolist())
        runs = (VersionRun(step=version, count=count),)
        return TokenSpan(
            id=id_,
            parent=parent,
            kind=SpanKind.COMPLETION,
            token_ids_T=tokens(count),
            logprobs_T=logprobs,
            versions=runs,
        )

    prompt = tokens(11)
    members = []
    for index in range(size):
        spans = [
            TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=prompt),
            completion(1, 0, 3 + index),
            TokenSpan(id=2, parent=1, kind=SpanKind.OBSERVATION, token_ids_T=tokens(5)),
            completion(3, 2, 4),
        ]
        if index == 1:  # an edited history: a second tree
            spans += [TokenSpan(id=4, parent=None, kind=SpanKind.PROMPT, token_ids_T=tokens(6)), completion(5, 4, 2)]
        if index == 2:  # a branch after the observation
            spans.append(completion(4, 2, 3))
        members.append(TrainMember(attempt=f"a{index}", advantage=1.0 - 0.7 * index, spans=tuple(spans)))
    return TrainGroup(id="g", members=tuple(members))


def plain_losses(model: Transformer, group: TrainGroup, shape: LossShape) -> Tensor:
    """The same losses the naive way: one forward a root-leaf path, full logits, spans counted once, member by
    member."""
    total = torch.zeros(())
    for member in group.members:
        by_id = {span.id: span for span in member.spans}
        parents = {span.parent for span in member.spans}
        sampled: dict[int, Tensor] = {}
        for leaf in member.spans:
            if leaf.id in parents:
                continue
            path = [leaf]
            while path[-1].parent is not None:
                path.append(by_id[path[-1].parent])
            path.reverse()
            ids = torch.tensor(list(itertools.chain.from_iterable(span.token_ids_T for span in path)))
            hidden = model(ids, torch.arange(len(ids)), CausalAttention([len(ids)]))
            logprobs = model.logits(hidden[:-1]).log_softmax(-1).gather(1, ids[1:, None]).squeeze(1)
            place = 0
            for span in path:
                if span.kind is SpanKind.COMPLETION and span.id not in sampled:
                    sampled[span.id] = logprobs[place - 1 : place - 1 + len(span.token_ids_T)]
                place += len(span.token_ids_T)
        mine = torch.cat(list(sampled.values()))
        behaviour = torch.cat([torch.tensor(by_id[id_].logprobs_T) for id_ in sampled])
        advantages = torch.full_like(mine, member.advantage)
        one = Members(torch.zeros(len(mine), dtype=torch.long))
        total = total + policy_loss(mine, mine, behaviour, advantages, shape, members=one)[0]
    return total


SHAPES = {
    "grpo": LossShape(),
    "gspo": msgspec.structs.replace(ALGORITHMS["gspo"].shape, ratio_low=0.5, ratio_high=2.0),
    "cispo": ALGORITHMS["cispo"].shape,
    "sequence": LossShape(correction=CORRECTIONS["sequence_tis"], denominator="sequence_mean"),
    "geometric": LossShape(correction=msgspec.structs.replace(CORRECTIONS["geometric"], low=0.9, high=1.2)),
    "kl": LossShape(kl=KlTerm(weight=0.3, reference="sampling")),
}


@pytest.mark.parametrize("max_tokens", [1 << 30, 30])
@pytest.mark.parametrize(("tied", "name"), [(True, "grpo"), *((False, name) for name in SHAPES)])
def test_shared_prefix_gives_the_losses_and_gradients_of_whole_sequences(
    tiny_config: TransformerConfig, monkeypatch: pytest.MonkeyPatch, max_tokens: int, tied: bool, name: str
) -> None:
    monkeypatch.setattr("flightschool.training.head.HEAD_CHUNK", 7)  # members must not be cut by chunks of the head
    shape = SHAPES[name]
    config = msgspec.structs.replace(tiny_config, tied_embeddings=tied)
    model = Transformer(config).initialise(seed=3, std=0.2)
    group = random_group()
    expected = plain_losses(model, group, shape)
    expected.backward()  # type: ignore[no-untyped-call]
    gradients = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    loss = 0.0
    for pack in pack_group(group, newest_step=0, max_tokens=max_tokens):
        attention = SharedPrefixAttention(pack)
        hidden = model(torch.tensor(pack.tokens_N), torch.tensor(pack.positions_N), attention)
        leaf = hidden.detach().requires_grad_(True)
        loss += head_losses(model.logits, leaf, PackTensors.of(pack, torch.device("cpu")), shape).loss
        hidden.backward(leaf.grad)
    assert loss == pytest.approx(float(expected.detach()), abs=1e-5, rel=2e-6)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradients[key], atol=1e-5, rtol=1e-4)


def trainer(
    folder: Path, run_dir: Path, checkpoint: Path | None = None, step: int = 0, **settings: object
) -> TorchTrainer:
    return TorchTrainer(trainer_spec(folder, run_dir, checkpoint, step, **settings))


def test_a_step_makes_good_tokens_likelier_and_publishes_verified_weights(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path)
    first = station.publish()
    group = random_group(size=2)
    station.accumulate(group)
    before = station._sums.loss
    stepped = station.step()
    assert stepped.version is not None
    assert stepped.version.step == 1
    assert stepped.stats.num_trained_tokens == 17
    reader = WeightsReader(tmp_path / "weights")
    served = reader.read(stepped.version)
    assert all(torch.equal(served[name], p) for name, p in station.model.named_parameters())
    reader.release()
    with pytest.raises(InfrastructureError, match="do not verify"):  # given back: never served again
        reader.read(stepped.version)
    with pytest.raises(InfrastructureError, match="do not verify"):
        reader.read(first)
    station.accumulate(group)
    assert station._sums.loss < before


def test_only_the_trained_layers_move(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path, trained_layers=1)
    before = {name: value.detach().clone() for name, value in station.model.named_parameters()}
    station.accumulate(random_group())
    stepped = station.step()
    assert stepped.version is not None
    moved = {name for name, value in station.model.named_parameters() if not torch.equal(value, before[name])}
    last = station.model.config.num_layers - 1
    assert moved
    assert all(name.startswith((f"model.layers.{last}.", "model.norm.")) for name in moved)
    with WeightsReader(tmp_path / "weights") as reader:  # what is published is the whole model all the same
        assert set(reader.read(stepped.version)) == set(before)


@pytest.mark.parametrize("algorithm", ["grpo", "gspo", "reinforce_pp"])
def test_groups_in_one_pass_give_what_they_give_one_by_one(tiny_folder: Path, tmp_path: Path, algorithm: str) -> None:
    groups = [random_group(seed) for seed in range(3)]
    opening = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=tuple(range(20)))
    groups = [  # all open alike, as the tasks of one environment do
        msgspec.structs.replace(
            group,
            members=tuple(
                msgspec.structs.replace(
                    member,
                    spans=tuple(
                        msgspec.structs.replace(span, token_ids_T=opening.token_ids_T + span.token_ids_T)
                        if span.id == 0
                        else span
                        for span in member.spans
                    ),
                )
                for member in group.members
            ),
        )
        for group in groups
    ]
    alone, together = (
        trainer(tiny_folder, tmp_path / algorithm_folder(tmp_path, name), algorithm=algorithm) for name in "ab"
    )
    for group in groups:
        alone.accumulate(group)
    done = together.accumulate(*groups)
    one, other = alone.step().stats, together.step().stats
    assert done.num_forward_tokens == other.num_forward_tokens == one.num_forward_tokens - 2 * 20
    assert done.num_trained_tokens == one.num_trained_tokens
    rows = [msgspec.to_builtins(stats) for stats in (one, other)]
    for row in rows:
        del row["seconds"], row["num_forward_tokens"]
    assert rows[1] == pytest.approx(rows[0], abs=1e-6, rel=1e-5)
    for mine, theirs in zip(alone.model.parameters(), together.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_denominators(tiny_folder: Path, tmp_path: Path) -> None:
    losses = {}
    for algorithm in ("grpo", "dr_grpo"):
        station = trainer(tiny_folder, tmp_path / algorithm_folder(tmp_path, algorithm), algorithm=algorithm)
        station.accumulate(random_group(size=2))
        total = station._sums.loss
        losses[algorithm] = station.step().stats.loss / total
    assert losses == pytest.approx({"grpo": 1 / 17, "dr_grpo": 1 / (2 * 8)})


@pytest.mark.parametrize(("algorithm", "live", "all_"), [("dr_grpo", 32, 128), ("rloo", 32, 128), ("gspo", 4, 16)])
def test_members_of_flat_groups_count_in_means_over_members(
    tiny_folder: Path, tmp_path: Path, algorithm: str, live: int, all_: int
) -> None:
    """Four members of eight tokens each, and twelve in groups of equal scores: the mean over sixteen is a quarter."""
    found = []
    for num_flat in (0, 12):
        folder = tmp_path / algorithm_folder(tmp_path, str(num_flat))
        station = trainer(tiny_folder, folder, algorithm=algorithm, mismatch_floor=10.0)
        station.accumulate(random_group())
        total = station._sums.loss
        stats = station.step(num_flat_members=num_flat).stats
        found.append((stats.loss / total, stats.grad_norm))
    assert [share for share, _ in found] == pytest.approx([1 / live, 1 / all_])
    assert found[1][1] == pytest.approx(found[0][1] / 4)


def algorithm_folder(root: Path, name: str) -> str:
    (root / name).mkdir()
    return name


def test_a_step_that_is_not_finite_is_skipped_and_its_batch_kept(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path)
    before = [p.clone() for p in station.model.parameters()]
    group = random_group(size=2)
    poisoned = msgspec.structs.replace(group.members[0], advantage=float("nan"))
    group = msgspec.structs.replace(group, members=(poisoned, group.members[1]))
    station.accumulate(group)
    assert station.step().version is None
    assert all(torch.equal(a, b) for a, b in zip(before, station.model.parameters(), strict=True))
    (kept,) = read_kept(RunFolder(tmp_path).kept)
    assert [made.id for made in kept.groups] == ["g"]
    assert [row.not_finite for row in kept_members(kept)] == [("advantage",), ()]
    station.accumulate(random_group(size=2))
    assert station.step().version is not None


def test_a_checkpoint_brings_weights_and_optimizer_back(tiny_folder: Path, tmp_path: Path) -> None:
    manifest = Manifest(run="r", incarnation=1, step=1, lineage=((1, 1),), consumed=("g",))
    station = trainer(tiny_folder, tmp_path)
    station.accumulate(random_group(1))
    station.step()
    station.save(tmp_path / "checkpoints" / "step-000001", manifest)
    other = trainer(tiny_folder, tmp_path, tmp_path / "checkpoints" / "step-000001", step=1)
    for each in (station, other):
        each.accumulate(random_group(2))
        each.step()
    assert all(torch.equal(a, b) for a, b in zip(station.model.parameters(), other.model.parameters(), strict=True))
    assert other.step_number == 2


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_a_checkpoint_that_cannot_be_loaded_is_named(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    manifest = Manifest(run="r", incarnation=1, step=1, lineage=((1, 1),), consumed=("g",))
    checkpoint = tmp_path / "checkpoints" / "step-000001"
    trainer(tiny_folder, tmp_path).save(checkpoint, manifest)
    assert read_checkpoint(checkpoint, thorough=True).consumed == ("g",)
    (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:-40])
    with pytest.raises(StoreError, match="checkpoint step-000001 is damaged"):
        read_checkpoint(checkpoint, thorough=False)
    with pytest.raises(StoreError, match="checkpoint step-000001 cannot be loaded") as told:
        trainer(tiny_folder, tmp_path, checkpoint, step=1)
    assert told.value.where == str(checkpoint)
    assert told.value.expected
    assert "--resume" in told.value.mend


def test_export_loads_as_a_model_folder(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path)
    station.accumulate(random_group())
    station.step()
    digest = station.export(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.digest == digest
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), station.model.parameters(), strict=True))


def test_short_zero_fill_is_found_by_recomputation(tiny_folder: Path, tmp_path: Path, make_spans: MakeSpans) -> None:
    station = trainer(tiny_folder, tmp_path)
    prompt, completion = make_spans(turns=(((4, 5, 6), ()),))
    filled = msgspec.structs.replace(completion, logprobs_T=(-5.0, 0.0, 0.0))
    group = TrainGroup(id="g", members=(TrainMember(attempt="a", advantage=1.0, spans=(prompt, filled)),))
    with pytest.raises(TokenContractError, match=r"exactly 0\.0"):
        station.accumulate(group)


def test_memory_that_is_kept_changes_no_bit(tiny_folder: Path, tmp_path: Path) -> None:
    """Moments and gradients are made before the first pass then, and nothing is given back."""
    found = {}
    for spare in (True, False):
        (tmp_path / str(spare)).mkdir()
        station = trainer(tiny_folder, tmp_path / str(spare), spare_memory=spare, max_staleness=4, mismatch_floor=10.0)
        for seed in range(2):
            station.accumulate(random_group(seed))
            station.step()
        found[spare] = station._weights.state(), station._optimizer.state_dict()["state"]
    weights, moments = ([found[spare][place] for spare in (True, False)] for place in (0, 1))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert moments[0].keys() == moments[1].keys()
    for place, state in moments[0].items():
        assert all(torch.equal(state[name], moments[1][place][name]) for name in state)
