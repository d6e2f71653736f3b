"""What a user may set about a training run. Imports no torch.

Every default has a reason: the learning rate, group sizes and clip bounds are those of a small model that learned a
two-turn desk in a dozen steps on two cores; ``clip_high`` > ``clip_low`` and the token mean are DAPO's (Yu et al.
2025); ``tis_cap`` = 2 is the common truncation of the importance weight. ``docs/training.md`` names the source of each.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from flightschool.config import Settings
from flightschool.engines.devices import DEVICE_PATTERN

__all__ = ["TrainingSettings"]


class TrainingSettings(Settings):
    """Settings of one run; the table ``[training]`` of a configuration file."""

    model_config = ConfigDict(allow_inf_nan=False)

    algorithm: Literal[
        "grpo", "dr_grpo", "rloo", "reinforce_pp", "dapo", "gspo", "cispo", "decoupled_ppo", "distill"
    ] = "grpo"
    """How rewards of a group become advantages (see ``algorithms``). ``distill``: a teacher says what is good, rewards
    are only measured."""
    mode: Literal["async", "sync"] = "async"
    """``async``: generation goes on while the trainer works. ``sync``: each waits for the other."""
    num_steps: int = Field(default=12, ge=1)
    """Optimizer steps."""
    learning_rate: float = Field(default=1e-5, gt=0.0)
    """Learning rate of AdamW; constant once the warm-up is over."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to its value. Adam's first steps are as long as its later ones
    and point where one small batch points: what a model brings along is easily lost in them."""
    trained_layers: int | None = Field(default=None, ge=1)
    """Topmost layers that are trained, with the final norm; embeddings and all layers below stay as they are. None
    trains everything. Half of the layers cost a third less time and memory."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the low-rank change that is trained on every linear layer (see ``lora``); 0 trains the weights."""
    lora_alpha: float | None = Field(default=None, gt=0.0)
    """Its scale times the rank; None: twice the rank."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What trainer and engine compute in. ``bfloat16`` keeps float32 masters of what trains."""
    gradient_checkpointing: bool = False
    """Whether layers are computed again in the backward pass instead of kept: a third more time, far less memory."""
    spare_memory: bool = True
    """Whether every step gives back what passes have freed, and published weights once they are read. Fetching it again
    is a twentieth to a tenth of a step on CPUs; keeping it holds the largest pass and the weights once more."""
    routing_replay: bool = True
    """Whether a mixture of experts is trained with the experts that generation chose."""
    group_size: int = Field(default=8, ge=2, le=1024)
    """Attempts at one task that are compared with one another: episodes side by side, each with a cache of its own. At
    1024 the group's mean is known to 1/32 of the rewards' spread; larger ones are slips of the pen."""
    trained_members: int | None = Field(default=None, ge=2)
    """Members of a group that get a gradient: those whose advantages are most spread. None: all. Advantages are made
    from the whole group either way. For machines on which training costs more than sampling."""
    groups_per_step: int = Field(default=4, ge=1, le=65536)
    """Groups an optimizer step waits for; staleness may make it wait for more. Their attempts lie in memory: a number
    beyond the bound would never make a step."""
    count_zero_advantage: bool = False
    """Whether groups without a gradient count among ``groups_per_step`` (a step still needs one group with one), and
    their members in the mean of ``dr_grpo``, ``rloo`` and ``gspo``, as in those papers. False: more are sampled."""
    max_staleness: int = Field(default=1, ge=1, le=16)
    """No gradient comes from a token sampled more than this many versions before the step that applies it."""
    max_inflight_groups: int = Field(default=6, ge=1, le=65536)
    """Groups under way at the same time, those included that are finished and wait for the trainer: how far generation
    may run ahead. About ``max_inflight_groups / groups_per_step`` is the staleness that results."""
    drain_before_step: bool = False
    """Whether to start no group while at most one running group holds the step and three quarters of the groups of a
    step wait for the trainer: smaller steps for a little idle generation (figures: docs/design/staleness.md)."""
    temperature: float = Field(default=1.0, ge=0.01, le=10.0)
    """Sampling temperature; the trainer scores tokens under the same. Below 0.01 sampling is greedy and gradients are a
    hundredfold, above 10 it is nearly uniform: a slip of the pen."""
    initial_temperature: float | None = Field(default=None, ge=0.01)
    """Sampling temperature at the beginning; it rises to ``temperature`` as the policy succeeds (see the module of that
    name). None: sampled at ``temperature`` throughout."""
    temperature_rise: float = Field(default=0.05, gt=0.0)
    """By how much it rises after a step, at most."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Longest completion of one turn."""
    max_context: int = Field(default=1024, ge=16)
    """Longest episode in tokens, prompt included; never above the model's own."""
    clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
    """The policy ratio is clipped below at 1 − this."""
    clip_high: float = Field(default=0.28, gt=0.0)
    """The policy ratio is clipped above at 1 + this."""
    sequence_clip_low: float = Field(default=3e-4, gt=0.0, lt=1.0)
    """``gspo`` instead of ``clip_low``: its ratio is a geometric mean over all tokens and stays near 1."""
    sequence_clip_high: float = Field(default=4e-4, gt=0.0)
    """``gspo`` instead of ``clip_high``."""
    cispo_cap: float = Field(default=5.0, ge=1.0)
    """``cispo``: largest importance weight of a token."""
    proximal: Literal["auto", "policy", "behaviour"] = "auto"
    """Denominator of the policy ratio: the trainer's policy just before the step, or the one that sampled. ``auto``:
    the algorithm's own."""
    correction: Literal["auto", "none", "is", "tis", "icepop", "sequence_tis", "sequence_mis", "geometric"] = "auto"
    """What makes up for a sampling policy that is not the trainer's (see ``algorithms/corrections.py``). ``auto``: the
    algorithm's own: truncated weights, or none where the ratio is already that to the sampling policy."""
    tis_cap: float = Field(default=2.0, ge=1.0)
    """Largest importance weight between the trainer's policy and the one that sampled."""
    reject_low: float | None = Field(default=None, ge=0.0)
    """Lower bound of a rejecting correction, at most 1; None: that of its source."""
    reject_high: float | None = Field(default=None, gt=0.0)
    """Upper bound of it, at least 1."""
    veto: float | None = Field(default=None, gt=0.0, lt=1.0)
    """An attempt with any importance weight below this gets no gradient; 1e-4 is usual. None: none is dropped."""
    opsm_delta: float | None = Field(default=None, gt=0.0)
    """An attempt with a negative advantage whose tokens became less likely by more than this on average, in nats, gets
    no gradient (off-policy sequence masking; 1e-4 in its source). None: none is dropped."""
    kl_weight: float = Field(default=0.0, ge=0.0)
    """Weight of the penalty for leaving a reference policy."""
    kl_estimator: Literal["k1", "k3"] = "k3"
    """Estimator of the divergence on sampled tokens."""
    kl_reference: Literal["start", "sampling"] = "start"
    """The model that the run began with (a second model in memory), or the policy that sampled (none)."""
    overlong_limit: int | None = Field(default=None, ge=1)
    """``dapo``: sampled tokens of an attempt at which its score is reduced by ½, half of the distance between right
    and wrong; never so far that a correct attempt falls below another. None: length costs nothing."""
    overlong_buffer: int = Field(default=64, ge=1)
    """``dapo``: tokens before the limit over which the reduction grows from 0."""
    turn_weight: float = Field(default=0.0, ge=0.0, le=1.0)
    """Bound of the process reward of single turns, credited to the tokens of their turn; 0 switches it off."""
    turn_quality: Literal["failed_calls", "milestones"] = "failed_calls"
    """What makes a turn good: calls that did not fail by the policy's own doing, or progress towards the milestones
    that the task's checks declare, as potential-based shaping (see ``algorithms/turns.py``)."""
    mismatch_floor: float = Field(default=0.03, gt=0.0)
    """Mean |log π − log μ| of fresh tokens, in nats, that the engine's arithmetic alone may cause. A run stops when
    fresh tokens differ more, and like stale ones: then version tags are not true."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients are scaled down to this norm."""
    process_weight: float = Field(default=0.1, ge=0.0, le=1.0)
    """Weight of the process term beside the outcome (weight 1), inside the group's normalisation."""
    latency_weight: float = Field(default=0.0, ge=0.0, le=0.25)
    """Bound of the latency term: added after normalisation, among correct members only. 0 switches it off, so that
    groups in which all succeed cost nothing."""
    thinking_weight: float = Field(default=0.0, ge=0.0, le=0.25)
    """Bound of the thinking term, made like the latency term: how well a correct attempt kept its budget of sampled
    tokens. Nothing where the reward has no budget."""
    distill_weight: float = Field(default=0.0, ge=0.0, le=1.0)
    """Weight of the teacher's word on every sampled token beside a rewarded algorithm: its advantage gets this times
    log π_teacher − log π. ``algorithm = "distill"`` needs none: there the teacher is all that trains."""
    distill_clip: float = Field(default=5.0, gt=0.0)
    """Bound of that difference in nats, either way: a token that the teacher rules out has a log-probability of −∞."""
    distill_discount: float = Field(default=0.0, ge=0.0, le=1.0)
    """How much of what the teacher says of later tokens of the same turn is credited to a token."""
    noise: str = "clean"
    """Fault profile of noisy groups: a built-in name or a path."""
    noisy_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of groups that meet the noise; whole groups, so that members are compared under equal weather."""
    shuffle_rewards: bool = False
    """Negative control: rewards are permuted within each group before they become advantages."""
    max_flat_groups: int = Field(default=64, ge=1)
    """The run ends early, with a reason, after this many groups in a row without a gradient."""
    checkpoint_every: int = Field(default=4, ge=1)
    """Steps between checkpoints."""
    max_pack_tokens: int = Field(default=1280, ge=1)
    """Tokens that go through the model at once; more members are split into several passes (bounds memory). A pass has
    at least one member, and half as many tokens beside a common beginning that is longer than half of this."""
    num_threads: int = Field(default=1, ge=1, le=1024)
    """Threads of each of the two stations."""
    device: str = Field(default="cpu", pattern=DEVICE_PATTERN)
    """Where the trainer computes, and the engine unless ``engine.device`` says otherwise: any type that torch knows
    (``cuda``, ``xpu``, ``mps``), with an index or, of several trainers, without: rank i takes device i."""
    hang_s: float = Field(default=1800.0, gt=0.0)
    """Seconds after which a trainer that does not answer is taken to hang: it is made to write its stack, and ended."""
    group_limit_s: float | None = Field(default=1800.0, gt=0.0)
    """Seconds that a group may take before it is begun anew; no straggler holds the step for longer. None: for ever."""
    max_restarts: int = Field(default=3, ge=0)
    """Tries that a failed group gets, and restarts that lost processes get, as long as nothing goes forward between."""
    restart_pause_s: float = Field(default=1.0, ge=0.0)
    """Pause before the first try after a failure; doubles each time."""
    num_trainers: int = Field(default=1, ge=1, le=4096)
    """Processes that weights, gradients and optimizer are sharded over (FSDP2); on accelerators a device each."""
    publication: Literal["shared_memory", "safetensors", "broadcast", "cuda_ipc"] = "shared_memory"
    """How weights reach the engine (see ``publication``)."""
    separate_process: bool = True
    """Whether the trainer has a process of its own; False is possible in ``sync`` mode only."""
    trackers: tuple[Literal["tensorboard", "trackio", "opentelemetry"], ...] = ("tensorboard",)
    """Where figures go beside ``metrics.jsonl`` (see ``trackers``)."""
    seed: int = 0
    """Seed of task order, episodes and noise."""
    time_limit_s: float | None = Field(default=None, gt=0.0)
    """Wall time after which the run ends; what is accumulated by then is still applied, in one last step."""

    @property
    def first_temperature(self) -> float:
        """Sampling temperature of the first groups."""
        return self.temperature if self.initial_temperature is None else self.initial_temperature

    @property
    def asks_teacher(self) -> bool:
        """Whether a teacher's word trains."""
        return self.algorithm == "distill" or self.distill_weight > 0.0

    @property
    def teacher_weight(self) -> float:
        """Weight of the teacher's word on a token; 0 where none is asked. Shuffled rewards must teach nothing."""
        if self.shuffle_rewards:
            return 0.0
        return 1.0 if self.algorithm == "distill" else self.distill_weight

    @model_validator(mode="after")
    def _rising(self) -> TrainingSettings:
        if self.first_temperature > self.temperature:
            raise ValueError("initial_temperature of at most temperature: it only rises")
        return self

    @model_validator(mode="after")
    def _possible_sizes(self) -> TrainingSettings:
        if self.max_new_tokens >= self.max_context:
            raise ValueError(f"max_new_tokens below max_context ({self.max_context}): a prompt needs room too")
        if self.trained_members is not None and self.trained_members > self.group_size:
            raise ValueError(f"trained_members of at most group_size ({self.group_size})")
        return self

    @model_validator(mode="after")
    def _sharded_as_it_can(self) -> TrainingSettings:
        if self.num_trainers > 1 and (self.lora_rank or self.dtype != "float32" or not self.separate_process):
            raise ValueError("num_trainers 1 with lora_rank, bfloat16 or without a process of the trainer's own")
        if self.num_trainers > 1 and ":" in self.device:
            kind = self.device.partition(":")[0]
            raise ValueError(
                f"device {kind!r} without an index where num_trainers is {self.num_trainers}: the trainers take "
                f"{kind}:0 to {kind}:{self.num_trainers - 1}"
            )
        if self.publication == "broadcast" and not self.separate_process:
            raise ValueError("publication 'broadcast' with a process of the trainer's own: both ends must meet")
        if self.publication == "cuda_ipc" and not self.device.startswith("cuda"):
            raise ValueError("publication 'cuda_ipc' only with device 'cuda'")
        return self

    @model_validator(mode="after")
    def _one_correction(self) -> TrainingSettings:
        by_behaviour = self.proximal == "behaviour" or (self.proximal == "auto" and self.algorithm in ("gspo", "cispo"))
        if by_behaviour and self.correction not in ("auto", "none"):
            raise ValueError(
                "correction 'auto' or 'none' where the ratio is to the sampling policy: it corrects already"
            )
        low, high = self.reject_low, self.reject_high
        if (low is not None or high is not None) and self.correction not in ("icepop", "sequence_mis", "geometric"):
            raise ValueError("reject_low and reject_high only with correction 'icepop', 'sequence_mis' or 'geometric'")
        if (low is not None and low > 1.0) or (high is not None and high < 1.0) or (low == high == 1.0):
            raise ValueError(
                "reject_low of at most 1 and reject_high of at least 1, not both 1: a weight of 1 is no mismatch, and "
                "bounds beside it reject every token"
            )
        return self

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> TrainingSettings:
        if self.lora_alpha is not None and not self.lora_rank:
            raise ValueError("lora_alpha only with a lora_rank above 0: without one no low-rank change is trained")
        if not self.kl_weight and (self.kl_reference != "start" or self.kl_estimator != "k3"):
            raise ValueError(
                "kl_reference and kl_estimator only with a kl_weight above 0: without one there is no penalty"
            )
        return self

    @model_validator(mode="after")
    def _fits_the_algorithm(self) -> TrainingSettings:
        if self.overlong_limit is not None and self.algorithm != "dapo":
            raise ValueError("overlong_limit only with algorithm 'dapo'")
        if self.overlong_limit is not None and self.overlong_buffer > self.overlong_limit:
            raise ValueError("overlong_buffer of at most overlong_limit")
        if self.algorithm == "reinforce_pp":
            scaled = {
                "latency_weight": self.latency_weight,
                "thinking_weight": self.thinking_weight,
                "turn_weight": self.turn_weight,
                "kl_weight": self.kl_weight,
                "distill_weight": self.distill_weight,
            }
            named = [name for name, value in scaled.items() if value]
            if named:
                raise ValueError(f"no {named[0]} with 'reinforce_pp': the scale of the step would blow it up")
            if 0.0 < self.noisy_share < 1.0:
                raise ValueError("noisy_share 0 or 1 with 'reinforce_pp': clean and noisy groups would share one scale")
        return self

    @model_validator(mode="after")
    def _taught_as_it_can(self) -> TrainingSettings:
        if self.algorithm == "distill":
            idle = {
                "distill_weight": self.distill_weight,
                "turn_weight": self.turn_weight,
                "latency_weight": self.latency_weight,
                "thinking_weight": self.thinking_weight,
                "trained_members": self.trained_members,
                "shuffle_rewards": self.shuffle_rewards,
            }
            named = [name for name, value in idle.items() if value]
            if named:
                raise ValueError(f"no {named[0]} with algorithm 'distill': rewards do not train there")
        if self.asks_teacher:
            if self.temperature != 1.0 or self.first_temperature != 1.0:
                raise ValueError("temperature 1 with a teacher: its log-probabilities are of that temperature")
            if self.kl_weight:
                raise ValueError("kl_weight 0 with a teacher: the teacher is the reference")
        return self
