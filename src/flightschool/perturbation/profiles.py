"""Fault profiles: which faults, how often, on which tools, at which time of the episode. Data with a digest.

A profile in a file::

    name = "plant-network"
    max_hits = 3            # of all faults together, per attempt

    [[faults]]
    kind = "stale_read"
    rate = 0.2              # chance of a matching call to be hit, if no fault above hit it
    tools = ["get_*"]       # shell patterns; all tools when left out
    effects = ["read"]      # all that the fault can hit when left out
    window = "late"         # early: calls 0-1, mid: 2-3, late: from 4; any when left out
    max_hits = 1            # of this fault, per attempt
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from flightschool.config import Settings, load_settings
from flightschool.digest import digest
from flightschool.errors import ConfigError, NotFoundError
from flightschool.perturbation.faults import FAULT_KINDS
from flightschool.records import Effect, Record

__all__ = ["BUILT_IN", "FaultProfile", "FaultRule", "Window", "profile"]


class Window(StrEnum):
    """Part of an episode, by the index of the call."""

    ANY = "any"
    EARLY = "early"  # calls 0 and 1
    MID = "mid"  # calls 2 and 3
    LATE = "late"  # call 4 and later


class FaultRule(Record, frozen=True, kw_only=True):
    """One fault of a profile."""

    kind: str
    """Name of the fault; a key of ``FAULT_KINDS``."""
    rate: float
    """Probability that a matching call is hit, given that no rule before this one hit it."""
    tools: tuple[str, ...] = ("*",)
    """Shell patterns of tool names."""
    effects: tuple[Effect, ...] = ()
    """Effects of the tools to hit; empty means all that the fault can hit."""
    window: Window = Window.ANY
    max_hits: int = 1
    """Most hits of this rule in one attempt."""


class FaultProfile(Record, frozen=True, kw_only=True):
    """The weather of an attempt, as declared."""

    name: str
    faults: tuple[FaultRule, ...] = ()
    max_hits: int = 2
    """Most hits of all rules together in one attempt, so that a task stays solvable within its turns."""

    @property
    def digest(self) -> str:
        """Content digest of the profile."""
        return digest(self)

    @property
    def label(self) -> str:
        """What attempts record: the name of a built-in profile, for others the name with the head of the digest."""
        return self.name if BUILT_IN.get(self.name) == self else f"{self.name}@{self.digest[7:19]}"

    @property
    def is_clean(self) -> bool:
        """Whether nothing can be hit."""
        return self.max_hits == 0 or not any(rule.rate > 0 and rule.max_hits > 0 for rule in self.faults)


def _mixture(name: str, scale: float, max_hits: int) -> FaultProfile:
    """All faults; ``scale`` 1 hits about every fourth call."""
    rates = {
        "timeout_before_write": 0.08,
        "timeout_after_write": 0.08,
        "timeout_of_read": 0.05,
        "rate_limited": 0.05,
        "server_error": 0.04,
        "stale_read": 0.10,
        "truncated_json": 0.06,
        "empty_result": 0.04,
        "latency_spike": 0.05,
    }
    return FaultProfile(
        name=name,
        faults=tuple(FaultRule(kind=kind, rate=round(rate * scale, 4)) for kind, rate in rates.items()),
        max_hits=max_hits,
    )


BUILT_IN: Mapping[str, FaultProfile] = {
    "clean": FaultProfile(name="clean", max_hits=0),
    "noisy": _mixture("noisy", scale=1.0, max_hits=2),
    "storm": _mixture("storm", scale=2.5, max_hits=4),
}
"""Profiles known by name."""


# ------------------------------------------------------------------------------------------------ from a file


class _RuleSettings(Settings):
    kind: str
    rate: float = Field(ge=0.0, le=1.0)
    tools: tuple[str, ...] = Field(default=("*",), min_length=1)
    effects: tuple[Effect, ...] = ()
    window: Window = Window.ANY
    max_hits: int = Field(default=1, ge=0)

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in FAULT_KINDS:
            near = difflib.get_close_matches(kind, FAULT_KINDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"one of {', '.join(FAULT_KINDS)}{hint}")
        return kind

    @model_validator(mode="after")
    def _possible(self) -> _RuleSettings:
        possible = FAULT_KINDS[self.kind].effects
        wrong = [effect.value for effect in self.effects if effect not in possible]
        if wrong:
            names = ", ".join(sorted(effect.value for effect in possible))
            raise ValueError(f"effects among {names} for {self.kind}, got {', '.join(wrong)}")
        return self


class _ProfileSettings(Settings):
    name: str = Field(min_length=1, max_length=80)
    max_hits: int = Field(default=2, ge=0)
    faults: tuple[_RuleSettings, ...] = ()

    @field_validator("name")
    @classmethod
    def _free(cls, name: str) -> str:
        if name in BUILT_IN:
            raise ValueError(f"a name of its own: {name!r} is built in")
        return name


def profile(name_or_path: str | Path) -> FaultProfile:
    """A built-in profile by name, or the profile in a TOML file (a reference with ``/`` or a leading ``.``).

    Raises:
        NotFoundError: no built-in profile of that name.
        ConfigError: the file is missing, no TOML, or declares something that cannot be.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.startswith("."):
        return _load(Path(name_or_path))
    if text in BUILT_IN:
        return BUILT_IN[text]
    near = difflib.get_close_matches(text, BUILT_IN, n=1)
    mend = f"did you mean {near[0]!r}?" if near else f"for a file, write a path: ./{text}"
    raise NotFoundError(
        f"no fault profile is named {text!r}", where="profile", expected=f"one of {', '.join(BUILT_IN)}", mend=mend
    )


def _load(path: Path) -> FaultProfile:
    settings = load_settings(path, _ProfileSettings)
    loaded = FaultProfile(
        name=settings.name,
        faults=tuple(FaultRule(**rule.model_dump()) for rule in settings.faults),
        max_hits=settings.max_hits,
    )
    if not loaded.faults:
        raise ConfigError(
            f"profile {loaded.name!r} declares no faults",
            where=str(path),
            expected="at least one [[faults]] table",
            mend="add one, or use the built-in profile 'clean'",
        )
    return loaded
