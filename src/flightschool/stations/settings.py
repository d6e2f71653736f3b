"""One file configures the whole road: the tables of ``flightschool.toml`` and of a training configuration.

Each table belongs to a room and is defined there; here they only stand together. Imports no torch.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from flightschool.config import Settings
from flightschool.engines.scoring.settings import TeacherSettings
from flightschool.engines.settings import EngineSettings
from flightschool.training.imitation import ImitationSettings
from flightschool.training.settings import TrainingSettings
from flightschool.verification import RewardSettings

__all__ = [
    "CanariesTable",
    "EnvironmentTable",
    "EvaluationTable",
    "FaultsTable",
    "HarnessTable",
    "JobSettings",
    "ModelTable",
    "ScreeningTable",
    "SuiteTable",
    "UncomparedTable",
    "WaiverTable",
]


class EnvironmentTable(Settings):
    """``[environment]``: where episodes come from."""

    name: str = "desk"
    """Name of the environment in the workspace."""
    traces: str | None = None
    """File of recorded traces to build it from; ``shipped`` names those of the worked domain; None: it exists."""
    format: str = "auto"
    """Trace format, see ``flightschool traces import --help``."""
    state: Path | None = None
    """Folder of JSON files with the state that the recorded episodes started from."""
    code: str | None = None
    """Module whose code answers tool calls; without it, recordings do."""
    checks: Path | None = None
    """TOML file of checks that judge the tasks beside those drafted from the traces (docs/design/verification.md)."""
    redact: bool = True
    """Replace secrets and personal data in traces and state before anything is kept; false is noted in the log."""


class ModelTable(Settings):
    """``[model]``: what is trained."""

    name: str = "smollm2-135m"
    """A catalogue name, or the path of a local Hugging Face folder."""


class HarnessTable(Settings):
    """``[harness]``: what drives the model through a task."""

    command: tuple[str, ...] | None = None
    """A program that is started once per attempt and speaks to the model as to any OpenAI-compatible server (see
    docs/design/gateway.md); a text is split into words as a shell would. None: the built-in tool-calling harness."""
    directory: Path | None = None
    """Folder in which the program is started, and which relative paths in ``command`` are taken from. None: that of the
    configuration file."""
    timeout_s: float = Field(default=300.0, gt=0.0)
    """Real seconds that the program may take in one attempt; time in which it awaits a completion does not count."""

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:  # Any: what stands in the file, not yet validated
        words = shlex.split(value) if isinstance(value, str) else value
        if words is not None and not words:
            raise ValueError("a program and its arguments, or no key at all")
        return words


class FaultsTable(Settings):
    """``[faults]``: the weather."""

    training: str = "noisy"
    """Profile that part of the training groups meets (see ``training.noisy_share``)."""
    evaluation: str = "noisy"
    """Profile of the perturbed measurement."""


class ScreeningTable(Settings):
    """``[screening]``: which tasks are worth training on."""

    budget: int = Field(default=96, ge=1, le=256)
    """Most model rollouts that screening may spend."""
    threshold: float = Field(default=0.2, ge=0.0, le=1.0)
    """Least posterior probability of reward variance in a group."""


class CanariesTable(Settings):
    """``[canaries]``: impossible tasks among those that train, to see whether the policy learns to cheat."""

    tasks: tuple[str, ...] = ()
    """Tasks that no honest policy can pass. Their groups are watched and give no gradient."""
    reason: str = ""
    """Why no honest policy can pass them."""
    share: float = Field(default=0.05, gt=0.0, le=0.5)
    """Of the groups of a training."""

    @model_validator(mode="after")
    def _said_why(self) -> CanariesTable:
        if self.tasks and not self.reason.strip():
            raise ValueError("canaries with a reason: whoever reads a finding must be able to check it")
        return self


class WaiverTable(Settings):
    """``[waiver]``: who lets tasks train against the audit's advice, and why. It is logged and on every report."""

    name: str = ""
    """A person's."""
    reason: str = ""
    tasks: tuple[str, ...] = ()
    """Tasks that may train though they were not found sound. None: only the refusal for findings that concern the
    whole environment is waived."""

    @model_validator(mode="after")
    def _whole(self) -> WaiverTable:
        given = [bool(self.name.strip()), bool(self.reason.strip())]
        if any(given) != all(given) or (self.tasks and not all(given)):
            raise ValueError("a waiver with both a name and a reason")
        return self


class UncomparedTable(Settings):
    """``[uncompared]``: who lets a training begin though some suites cannot be compared with it, and why.

    It is logged and on every report. Only the comparison of texts is waived: a task that a suite holds never trains.
    """

    name: str = ""
    """A person's."""
    reason: str = ""
    suites: tuple[str, ...] = ()
    """Suites and holdouts whose texts cannot be had, or whose key is elsewhere."""

    @model_validator(mode="after")
    def _whole(self) -> UncomparedTable:
        if len({bool(self.name.strip()), bool(self.reason.strip()), bool(self.suites)}) > 1:
            raise ValueError("suites that go uncompared with both a name and a reason")
        return self


class SuiteTable(Settings):
    """``[suite]``: what is frozen before anything trains."""

    name: str = "checkride"
    strata: str = "stratum"
    """Attribute of tasks that defines the strata."""
    suite_fraction: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of each stratum's families that the suite takes."""
    holdout_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Share of each stratum's families that is sealed."""
    trained: tuple[str, ...] = ("two_step",)
    """Strata that the training is declared to train."""
    max_tasks_per_family: int = Field(default=8, ge=1)
    """Most tasks a family gives to the suite."""
    max_tasks_untrained: int = Field(default=16, ge=1)
    """Most tasks of each stratum that is not trained; they are measured for side effects."""


class EvaluationTable(Settings):
    """``[evaluation]``: how is measured."""

    temperature: float = Field(default=1.0, ge=0.0)
    """Sampling temperature; 1 is the policy that is trained, 0 its likeliest token."""
    greedy: bool = True
    """Whether greedy decoding is measured beside it: part of a gain may be mere sharpening."""
    repeats: int = Field(default=1, ge=1)
    """Attempts a task."""
    concurrency: int = Field(default=32, ge=1)
    """Episodes side by side."""
    negative_control_steps: int = Field(default=0, ge=0)
    """Steps of a control run with rewards shuffled within groups; 0 = none."""


class JobSettings(Settings):
    """The whole file."""

    seed: int = 0
    time_limit_s: float | None = Field(default=None, gt=0.0)
    """Wall time of the whole job: training takes what the other stations leave (see ``training.time_limit_s``)."""
    environment: EnvironmentTable = EnvironmentTable()
    model: ModelTable = ModelTable()
    engine: EngineSettings = EngineSettings()
    harness: HarnessTable = HarnessTable()
    faults: FaultsTable = FaultsTable()
    reward: RewardSettings = RewardSettings()
    screening: ScreeningTable = ScreeningTable()
    suite: SuiteTable = SuiteTable()
    waiver: WaiverTable = WaiverTable()
    uncompared: UncomparedTable = UncomparedTable()
    canaries: CanariesTable = CanariesTable()
    imitation: ImitationSettings = ImitationSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationTable = EvaluationTable()
    teacher: TeacherSettings | None = Field(default=None, validate_default=True)
    """``[teacher]``: whose word trains, with ``training.algorithm = "distill"`` or ``training.distill_weight``. Stands
    behind the tables that it is held against."""

    @model_validator(mode="after")
    def _credits_turns_it_can_tell(self) -> JobSettings:
        if self.harness.command is not None and self.training.turn_weight:
            raise ValueError("training.turn_weight 0 with harness.command: which turn asked for a call is not known")
        return self

    @model_validator(mode="after")
    def _pays_for_a_budget_that_there_is(self) -> JobSettings:
        if self.training.thinking_weight and not self.reward.thinking_budget:
            raise ValueError(
                "reward.thinking_budget of at least 1 with training.thinking_weight: nothing else is paid for"
            )
        return self

    @field_validator("teacher")
    @classmethod
    def _asked(cls, teacher: TeacherSettings | None, info: ValidationInfo) -> TeacherSettings | None:
        training, engine, evaluation = (info.data.get(name) for name in ("training", "engine", "evaluation"))
        if training is None or engine is None or evaluation is None:
            return teacher  # one of them is wrong by itself, which is told first
        if training.asks_teacher and teacher is None:
            raise ValueError("a table [teacher] with training.algorithm 'distill' or training.distill_weight")
        if teacher is not None and not training.asks_teacher:
            raise ValueError("no table [teacher] without training.algorithm 'distill' or training.distill_weight")
        if teacher is not None and engine.constrain_calls:
            raise ValueError("engine.constrain_calls false with [teacher]: it cannot judge what a grammar constrained")
        if training.algorithm == "distill" and evaluation.negative_control_steps:
            raise ValueError("evaluation.negative_control_steps 0 with 'distill': it has no rewards to shuffle")
        return teacher
