"""Make the tiny model that ships with flightschool: a clerk with bad habits, for reinforcement learning to cure.

Run from the repository root; one thread, about ten minutes, equal code and seed give an equal model on equal machines::

    python recipes/make_tiny_model.py

It is taught by imitation of the desk's *imperfect* operators (the ones that recorded the shipped traces), so it knows
how to read, copy and write, and often skips the look-up, writes a remembered value or stops half-way. Lessons come
from other seeds of the desk than the shipped one. A first phase teaches to copy in context and leaves out the families
that the offline job (seed 0) measures on; a second teaches the desk itself, all families of it: what a model this
small can do on families that it never saw is told in ``docs/design/tiny_model.md``.

Three choices make so small a model learn to copy in context rather than memorise the desk:

* A teacher stands where the engine would, behind the *real* session and harness, so lessons are rendered exactly as
  episodes are; all tasks of a family share their prompt, which goes through the model once.
* In most lessons words, capitals and digits are exchanged for one another, the same way throughout the lesson. What
  a name means then stands nowhere but in the lesson's worked example.
* Names and ids are tokenised alike in prose and in JSON: spaces and punctuation are never part of a word's token.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

import flightschool.environments.desk as desk_package
from flightschool.digest import derive_random, derive_seed
from flightschool.engines import ChatTokenizer, Transformer, TransformerConfig, save_model
from flightschool.engines.catalogue import tiny_folder
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.environments.desk.families import load_sites, load_strata, reworded
from flightschool.environments.desk.operators import OPERATORS
from flightschool.environments.desk.toolset import TOOLS
from flightschool.evaluation import freeze
from flightschool.perturbation import profile
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import Attempt, Message, SpanKind, Task, VersionRun, WeightsVersion
from flightschool.rollouts import CompactDialect, EnginePolicy, EpisodeRunner, run_attempts
from flightschool.verification import OutcomeReward, RewardSettings

SEED = 1
PARAPHRASE = Path(desk_package.__file__).parent / "wording_paraphrase.toml"
VOCAB = 1024
ROUGH_SHARE = 0.2
"""Share of lessons in noisy weather; the teacher repeats a call that met a fault."""
PACKS_PER_STEP = 2
WARMUP_STEPS = 20
MATRIX_RATE = 0.02
VECTOR_RATE = 4e-3
ROPE_THETA = 1e6
STILL = 5
"""First pair of coordinates that rotary embedding hardly turns within a lesson."""


class Phase(NamedTuple):
    """A part of the training with lessons of its own."""

    desks: range
    """Seeds of the desks that are taught on; the shipped desk has seed 0."""
    strata: tuple[str, ...]
    pool_only: bool
    """Whether families of the offline job's suite and holdout are left out."""
    shifts: dict[str, int]
    """Operator → how many of twenty episodes it works; ``garbled`` is a careful one whose JSON breaks once."""
    disguised: float
    """Share of lessons whose symbols are exchanged."""
    prompt_weight: float
    """Weight in the loss of tokens that the model will never have to write."""
    steps: int
    first_rate: float
    """Share of the learning rates to begin with."""
    last_rate: float
    """Share that is left at the end; the way there is linear."""
    seed: int


COPYING = Phase(
    desks=range(100, 120),
    strata=("two_step", "three_step"),
    pool_only=True,
    shifts={"careful": 11, "hasty": 3, "mistaken": 2, "forgetful": 2, "clumsy": 1, "garbled": 1},
    disguised=0.85,
    prompt_weight=0.1,
    steps=600,
    first_rate=1.0,
    last_rate=0.25,
    seed=SEED,
)
"""To copy in context."""
DESK = Phase(
    desks=range(200, 216),
    strata=("two_step",),
    pool_only=False,
    shifts={"careful": 9, "hasty": 4, "mistaken": 3, "forgetful": 2, "clumsy": 1, "garbled": 1},
    disguised=0.3,
    prompt_weight=0.02,
    steps=450,
    first_rate=0.4,
    last_rate=0.088,
    seed=SEED + 1,
)
"""To work at the desk as its operators do."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PIECES = r"[A-Z]?[a-z]+(?:_[a-z]+)*|[A-Z]|[0-9]|(?: ?[^\sA-Za-z0-9])+ ?|\s"
FIXED_WORDS = "system user assistant Tools Result Done error ok true no valid call"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


# ---------------------------------------------------------------------------------------------- what is taught


def families_of(phase: Phase) -> frozenset[str]:
    """Families that a phase is taught on."""
    table = tomllib.loads((files("flightschool.stations") / "offline.toml").read_text(encoding="utf-8"))["suite"]
    desk = build_environment(seed=0)
    frozen = freeze(
        desk, "offline", suite_fraction=table["suite_fraction"], holdout_fraction=table["holdout_fraction"], seed=0
    )
    pool = [desk.task(task_id) for task_id in frozen.pool]
    return frozenset(
        task.family for task in (pool if phase.pool_only else desk.tasks()) if task.stratum in phase.strata
    )


def open_desks(phase: Phase) -> list[DeskEnvironment]:
    """Desks that know the families of a phase alone; every second one is worded otherwise."""
    families = families_of(phase)
    names = {tool.name: tool.name for tool in TOOLS}
    desks = []
    for seed in phase.desks:
        known = load_strata() if seed % 2 == 0 else reworded(load_strata(), PARAPHRASE)
        strata = [
            msgspec.structs.replace(stratum, families=tuple(f for f in stratum.families if f.name in families))
            for stratum in known
            if stratum.name in phase.strata
        ]
        desks.append(DeskEnvironment(strata, seed, names))
    return desks


def script(desk: DeskEnvironment, task: Task, operator: str) -> list[str]:
    """What an operator would write, turn by turn."""
    garbled = operator == "garbled"
    turns = OPERATORS["careful" if garbled else operator][0](desk, task)
    texts = [CompactDialect().assistant(turn) for turn in turns]
    if garbled:
        slip = derive_random("slip", desk.seed, task.id).randrange(len(texts) - 1)
        texts[slip] = texts[slip][:-1]
    return texts


class Teacher:
    """Stands where an engine would (``protocols.Engine``): plays scripts, and repeats a call that met a fault."""

    version = WeightsVersion(run="teacher", incarnation=0, step=0, digest="")
    max_context = 4096

    def __init__(self, tokenizer: ChatTokenizer, scripts: dict[str, list[str]]) -> None:
        self._tokenizer = tokenizer
        self._left = {task: list(texts) for task, texts in scripts.items()}
        self._said: dict[str, str] = {}

    async def generate(self, request: GenerationRequest) -> Generation:
        """The next line of the script, as if sampled."""
        task = request.session.split("/")[1]
        told = self._tokenizer.decode(request.token_ids_T[-60:]).rsplit("Result: ", 1)[-1]
        struck = any(word in told for word in ("timed out", "retry")) or not _is_whole(told)
        if task in self._said and struck:
            text = self._said.pop(task)
        else:
            text = self._said[task] = self._left[task].pop(0)
        tokens = (*self._tokenizer.encode(text), self._tokenizer.stop_token_ids[0])
        runs = (VersionRun(step=0, count=len(tokens)),)
        return Generation(token_ids_T=tokens, logprobs_T=(-0.1,) * len(tokens), versions=runs, kv_step=0, finish="stop")

    def release(self, session: str) -> None:
        """Nothing is held."""


def _is_whole(told: str) -> bool:
    return "\nassistant" not in told or told.split("\nassistant", maxsplit=1)[0].rstrip().endswith(("}", "]"))


class Lesson(NamedTuple):
    """Episodes of one family that share their prompt, padded to equal lengths behind it."""

    prompt_P: Tensor
    members_MS: Tensor
    trained_MS: Tensor
    """True where an operator wrote the token."""
    real_MS: Tensor
    """False on padding."""


def lessons(phase: Phase, desk: DeskEnvironment, tokenizer: ChatTokenizer, found: Counter[str]) -> Iterator[Lesson]:
    """One lesson a family of this desk. Successes of each operator are counted in ``found``."""
    rng = derive_random("lessons", SEED, desk.seed)
    roster = [name for name, share in phase.shifts.items() for _ in range(share)]
    runner = EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="lessons")
    for family in sorted({task.family for task in desk.tasks()}):
        tasks = [task for task in desk.tasks() if task.family == family]
        shift = {task.id: rng.choice(roster) for task in tasks}
        teacher = Teacher(tokenizer, {task.id: script(desk, task, shift[task.id]) for task in tasks})
        attempts = run_attempts(
            runner,
            tasks,
            EnginePolicy(teacher, tokenizer, "teacher"),
            seed=derive_seed(SEED, desk.seed, family),
            weather_profile=profile("noisy") if rng.random() < ROUGH_SHARE else None,
        )
        for attempt in attempts:
            success = attempt.reward is not None and attempt.reward.success
            found[f"{shift[attempt.task]} {'right' if success else 'wrong'}"] += 1
        yield _lesson([_flat(attempt) for attempt in attempts])


def _flat(attempt: Attempt) -> tuple[list[int], list[bool]]:
    tokens: list[int] = []
    trained: list[bool] = []
    for span in attempt.spans:
        tokens += span.token_ids_T
        trained += [span.kind is SpanKind.COMPLETION] * len(span.token_ids_T)
    return tokens, trained


def _lesson(rows: Sequence[tuple[list[int], list[bool]]]) -> Lesson:
    shared = 0
    while len({tokens[shared] for tokens, _ in rows}) == 1:
        shared += 1
    longest = max(len(tokens) for tokens, _ in rows) - shared
    pad = [longest + shared - len(tokens) for tokens, _ in rows]
    return Lesson(
        prompt_P=torch.tensor(rows[0][0][:shared]),
        members_MS=torch.tensor([tokens[shared:] + [0] * more for (tokens, _), more in zip(rows, pad, strict=True)]),
        trained_MS=torch.tensor([mask[shared:] + [False] * more for (_, mask), more in zip(rows, pad, strict=True)]),
        real_MS=torch.tensor([[True] * (longest - more) + [False] * more for more in pad]),
    )


# ---------------------------------------------------------------------------------------------- tokenizer


def make_tokenizer(desks: Sequence[DeskEnvironment]) -> ChatTokenizer:
    """Byte-level BPE over what these desks say; any UTF-8 text comes back as it was."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_texts(desks), trainer)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[2], "pad_token": SPECIAL[0]}
    table = config | {"chat_template": CHATML, "clean_up_tokenization_spaces": False, "model_max_length": 1024}
    return ChatTokenizer(
        {
            "tokenizer.json": backend.to_str(pretty=False).encode(),
            "tokenizer_config.json": (json.dumps(table, indent=2) + "\n").encode(),
        }
    )


def _texts(desks: Sequence[DeskEnvironment]) -> Iterator[str]:
    dialect = CompactDialect()
    for desk in desks:
        yield FIXED_WORDS
        yield " ".join(str(word) for pools in load_sites().values() for pool in pools.values() for word in pool)
        yield dialect.system(desk.policy_text, desk.tools())
        for task in desk.tasks():
            example = [_text(dialect, message) for message in task.example]
            yield "\n".join([task.guidance, *example, task.instruction])


def _text(dialect: CompactDialect, message: Message) -> str:
    return dialect.result(message.content) if message.role == "tool" else dialect.assistant(message)


class Disguise:
    """Exchanges symbols: words for words, capitals for capitals, digits for digits."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        fixed = {token for word in FIXED_WORDS.split() for token in tokenizer.encode(word)}
        names = {token: tokenizer.decode([token]) for token in range(len(SPECIAL), tokenizer.num_ids)}
        kinds = (r"[A-Za-z_]{2,}|[a-z]", r"[A-Z]", r"[0-9]")
        self._classes = [
            [token for token, name in names.items() if re.fullmatch(kind, name) and token not in fixed]
            for kind in kinds
        ]
        self._num_ids = tokenizer.num_ids

    def table(self, rng: random.Random, disguised: float) -> Tensor:
        """Token → token. Some lessons stay as they are, some change in part, some altogether."""
        mapping = list(range(self._num_ids))
        if rng.random() < disguised:
            share = rng.uniform(0.5, 1.0)
            for members in self._classes:
                changed = [token for token in members if rng.random() < share]
                for token, other in zip(changed, rng.sample(changed, len(changed)), strict=True):
                    mapping[token] = other
        return torch.tensor(mapping)


# ---------------------------------------------------------------------------------------------- training


class SharedPrompt:
    """``Attention`` over lessons laid end to end: a prompt sees itself, members see prompt and themselves."""

    def __init__(self, lessons_L: Sequence[Lesson]) -> None:
        self._shapes = [(len(lesson.prompt_P), *lesson.members_MS.shape) for lesson in lessons_L]
        self._masks = [
            torch.ones(size, length + size, dtype=torch.bool).tril(length) for length, _, size in self._shapes
        ]

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """See ``engines.Attention``."""
        del layer
        sizes = [length + count * size for length, count, size in self._shapes]
        parts = zip(*(torch.split(t, sizes) for t in (q_NHF, k_NKF, v_NKF)), self._shapes, self._masks, strict=True)
        return torch.cat([out for part in parts for out in self._attend(*part)])

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, shape: tuple[int, int, int], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        length, count, size = shape
        q_P, k_P, v_P = (t[:length].transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        q_S, k_S, v_S = (t[length:].view(count, size, *t.shape[1:]).transpose(1, 2) for t in (q, k, v))
        first = F.scaled_dot_product_attention(q_P, k_P, v_P, is_causal=True)
        k_S, v_S = (
            torch.cat((shared.expand(count, -1, -1, -1), own), dim=2) for shared, own in ((k_P, k_S), (v_P, v_S))
        )
        second = F.scaled_dot_product_attention(q_S, k_S, v_S, attn_mask=mask)
        return first.squeeze(0).transpose(0, 1), second.transpose(1, 2).flatten(0, 1)


def lesson_loss(
    model: Transformer, lessons_L: Sequence[Lesson], tables_L: Sequence[Tensor], prompt_weight: float
) -> Tensor:
    """Weighted mean of the next token's surprise: what operators wrote counts 1, all else ``prompt_weight``."""
    tokens, positions, targets, weights = [], [], [], []
    for lesson, table in zip(lessons_L, tables_L, strict=True):
        length, (count, size) = len(lesson.prompt_P), lesson.members_MS.shape
        prompt, members = table[lesson.prompt_P], table[lesson.members_MS]
        tokens += [prompt, members.flatten()]
        positions += [torch.arange(length), (torch.arange(size) + length).repeat(count)]
        weight_MS = torch.where(lesson.trained_MS, 1.0, prompt_weight) * lesson.real_MS
        nothing = torch.zeros(count, 1)
        targets += [prompt[1:], members[:1, 0], F.pad(members[:, 1:], (0, 1)).flatten()]
        weights += [torch.full((length - 1,), prompt_weight), torch.zeros(1)]
        weights += [torch.cat((weight_MS[:, 1:], nothing), dim=1).flatten()]
    hidden = model(torch.cat(tokens), torch.cat(positions), SharedPrompt(lessons_L))
    weight_N = torch.cat(weights)
    chosen = weight_N.nonzero().squeeze(1)
    surprise = F.cross_entropy(model.logits(hidden[chosen]), torch.cat(targets)[chosen], reduction="none")
    return (surprise * weight_N[chosen]).sum() / weight_N.sum()


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are made orthogonal (Jordan et al. 2024), in float32: torch's own rounds to bfloat16."""

    def __init__(self, matrices: Sequence[Tensor], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  never needed
        """One update; matrices of one shape go together."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                momentum.lerp_(gradient_of(matrix), 0.05)
                shapes.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in shapes.items():
                raw = torch.stack([torch.lerp(gradient_of(m), self.state[m]["momentum"], 0.95) for m in matrices])
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for matrix, update in zip(matrices, orthogonal(raw), strict=True):
                    matrix.sub_(update, alpha=group["lr"] * scale)


def gradient_of(parameter: Tensor) -> Tensor:
    """Its gradient, which every parameter has."""
    assert parameter.grad is not None
    return parameter.grad


def orthogonal(raw_BRC: Tensor) -> Tensor:
    """Nearest orthogonal matrices, roughly: five quintic Newton-Schulz iterations with Jordan's coefficients."""
    wide = raw_BRC.shape[1] <= raw_BRC.shape[2]
    x: Tensor = raw_BRC if wide else raw_BRC.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if wide else x.mT


def train(model: Transformer, phase: Phase, taught: Sequence[Lesson], disguise: Disguise) -> None:
    """Muon on matrices (Jordan et al. 2024), AdamW on the rest; rates rise, then fall linearly."""
    rng = derive_random("tiny-training", phase.seed)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimizers: tuple[torch.optim.Optimizer, ...] = (
        Muon(matrices, lr=MATRIX_RATE),
        torch.optim.AdamW(others, lr=VECTOR_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    )
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: _rate(step, phase)) for o in optimizers]
    order: list[Lesson] = []
    started, mean = time.monotonic(), 0.0
    for step in range(phase.steps):
        if len(order) < PACKS_PER_STEP:
            order = rng.sample(list(taught), len(taught))
        batch = [order.pop() for _ in range(PACKS_PER_STEP)]
        tables = [disguise.table(rng, phase.disguised) for _ in batch]
        loss = lesson_loss(model, batch, tables, phase.prompt_weight)
        for optimizer in optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        mean = loss.item() if step == 0 else 0.95 * mean + 0.05 * loss.item()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}/{phase.steps}  loss {mean:.3f}  {time.monotonic() - started:.0f} s", flush=True)


def _rate(step: int, phase: Phase) -> float:
    return min(1.0, (step + 1) / WARMUP_STEPS) * (
        phase.first_rate + (phase.last_rate - phase.first_rate) * step / phase.steps
    )


def shape(tokenizer: ChatTokenizer) -> TransformerConfig:
    """Below a million parameters."""
    return TransformerConfig(
        vocab=VOCAB,
        hidden=128,
        intermediate=256,
        num_layers=4,
        num_heads=4,
        num_kv_heads=4,
        head_dim=32,
        rope_theta=ROPE_THETA,
        tied_embeddings=True,
        attention_bias=True,
        output_bias=True,
        max_context=1024,
        eos_token_ids=tokenizer.stop_token_ids,
    )


def plant_induction(model: Transformer, seed: int) -> Transformer:
    """Start with what a small model takes longest to find: attention that continues a pattern seen before.

    Induction (Olsson et al. 2022) needs two layers. Heads of the first look back by a fixed offset: with constant
    queries and keys (biases alone) the score depends on the distance only, and the key's phase puts its maximum where
    it is wanted. Heads of the second compare the present token with what stood before each earlier one, on the
    coordinates that rotary embedding hardly turns, and copy what they find. All else starts from noise, and output
    projections from zero, so nothing drowns the signal. Training is free to undo any of it.
    """
    generator = torch.Generator().manual_seed(seed)
    size, half = model.config.head_dim, model.config.head_dim // 2
    still = torch.tensor([*range(STILL, half), *range(half + STILL, size)])
    weights = dict(model.named_parameters())

    def part(layer: int, projection: str, kind: str = "weight") -> Tensor:
        return weights[f"model.layers.{layer}.self_attn.{projection}_proj.{kind}"]

    def directions() -> Tensor:
        drawn = torch.randn(model.config.hidden, size, generator=generator)
        orthonormal: Tensor = torch.linalg.qr(drawn).Q
        return orthonormal

    with torch.no_grad():
        for name, parameter in weights.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
        frequencies = ROPE_THETA ** (-torch.arange(half) / half)
        read, before, earlier = directions(), directions(), directions()
        for head, write, asked in ((0, before, read), (1, earlier, before)):
            rows = slice(head * size, (head + 1) * size)
            angles = (head + 1) * frequencies
            part(0, "q")[rows] *= 0.1
            part(0, "k")[rows] *= 0.1
            part(0, "q", "bias")[rows] = 6.0 * torch.cat((torch.ones(half), torch.zeros(half)))
            part(0, "k", "bias")[rows] = 6.0 * torch.cat((angles.cos(), angles.sin()))
            part(0, "v")[rows] = read.T
            part(0, "o")[:, rows] = 0.12 * write
            for projection, source in (("q", asked), ("k", write)):
                part(1, projection)[rows] *= 0.1
                part(1, projection)[rows][still] = 1.7 * source.T[: len(still)]
            copy = directions()
            part(1, "v")[rows] = copy.T
            part(1, "o")[:, rows] = 1.0 * copy
    return model


def teach(model: Transformer, phase: Phase, desks: Sequence[DeskEnvironment], tokenizer: ChatTokenizer) -> None:
    """One phase: write its lessons, learn them."""
    started = time.monotonic()
    found: Counter[str] = Counter()
    taught = [lesson for desk in desks for lesson in lessons(phase, desk, tokenizer, found)]
    num_tokens = sum(len(lesson.prompt_P) + int(lesson.real_MS.sum()) for lesson in taught)
    print(f"{len(taught)} lessons, {num_tokens} tokens, {time.monotonic() - started:.0f} s")
    print("operators:", ", ".join(f"{key} {count}" for key, count in sorted(found.items())))
    train(model, phase, taught, Disguise(tokenizer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=tiny_folder(), help="folder to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    desks = open_desks(COPYING)
    tokenizer = make_tokenizer(desks)
    model = plant_induction(Transformer(shape(tokenizer)).initialise(SEED, std=0.06), SEED)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    teach(model, COPYING, desks, tokenizer)
    teach(model, DESK, open_desks(DESK), tokenizer)
    halves = {name: tensor.half() for name, tensor in model.state_dict().items()}
    print(save_model(model, options.out, tokenizer=tokenizer, state=halves))


if __name__ == "__main__":
    main()
