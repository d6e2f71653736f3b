"""``task.toml`` of the Harbor format, as far as it is understood here.

It is someone else's format and it grows, so unknown keys are kept and reported, not refused (unlike our own settings).
A known key with an impossible value is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from flightschool.errors import ConfigError
from flightschool.records import Json

__all__ = ["AgentTable", "HarborSettings", "StepSettings", "VerifierTable", "parse_harbor", "unknown_keys"]

DEFAULT_TIMEOUT_S = 600.0
"""What the format gives to building and to verifying when nothing is named."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", re.IGNORECASE)
_MB = {"K": 1 / 1024, "": 1 / (1024 * 1024), "M": 1, "G": 1024, "T": 1024 * 1024}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A string that people write as a number: a user id, a version."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Mode = Literal["public", "no-network", "allowlist"]


def _rewards(value: Any) -> Any:
    return value if isinstance(value, dict) else {"reward": value}


MinReward = Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], BeforeValidator(_rewards)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class AgentTable(_Table):
    """``[agent]``"""

    timeout_sec: Seconds | None = None
    user: Text = ""
    network_mode: Mode | None = None
    allowed_hosts: tuple[str, ...] = ()


class VerifierTable(_Table):
    """``[verifier]``"""

    timeout_sec: Seconds = DEFAULT_TIMEOUT_S
    env: dict[str, str] = {}
    user: Text = ""
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: tuple[dict[str, Any], ...] = ()
    network_mode: Mode | None = None
    allowed_hosts: tuple[str, ...] = ()


class EnvironmentTable(_Table):
    """``[environment]``"""

    build_timeout_sec: Seconds = DEFAULT_TIMEOUT_S
    docker_image: str = ""
    os: Literal["linux", "windows"] = "linux"
    cpus: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu_types: tuple[str, ...] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: tuple[dict[str, Any], ...] = ()
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    workdir: str = ""
    network_mode: Mode | None = None
    allowed_hosts: tuple[str, ...] = ()
    allow_internet: bool | None = None
    memory: str | None = None
    storage: str | None = None


class SolutionTable(_Table):
    """``[solution]``"""

    env: dict[str, str] = {}


class StepVerifierTable(_Table):
    """``verifier`` of a step; what is left out holds as in ``[verifier]``."""

    timeout_sec: Seconds | None = None
    user: Text = ""


class StepSettings(_Table):
    """``[[steps]]``"""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    agent: AgentTable = AgentTable()
    verifier: StepVerifierTable = StepVerifierTable()
    min_reward: MinReward = {}
    healthcheck: dict[str, Any] | None = None
    artifacts: tuple[Any, ...] = ()


class HarborSettings(_Table):
    """The whole file."""

    schema_version: Text = ""
    version: Text = ""
    source: str | None = None
    task: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    artifacts: tuple[Any, ...] = ()
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    steps: tuple[StepSettings, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"

    @property
    def memory_mb(self) -> int | None:
        """Memory in MiB by either spelling."""
        return self.environment.memory_mb or _size_mb(self.environment.memory, "memory")

    @property
    def storage_mb(self) -> int | None:
        """Storage in MiB by either spelling."""
        return self.environment.storage_mb or _size_mb(self.environment.storage, "storage")

    @property
    def network_mode(self) -> Mode:
        """Mode by either spelling."""
        if self.environment.network_mode is not None:
            return self.environment.network_mode
        return "no-network" if self.environment.allow_internet is False else "public"


def _size_mb(text: str | None, key: str) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"wrong value of 'environment.{key}': {text!r}",
            where="task.toml",
            expected="a size such as 2G or 512M",
            mend=f"use {key}_mb",
        )
    return max(1, round(float(match.group(1)) * _MB[match.group(2).upper()]))


def parse_harbor(table: dict[str, Json], where: str) -> HarborSettings:
    """Validate a table.

    Raises:
        ConfigError: the first wrong key with its place.
    """
    try:
        return HarborSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"wrong value of {key!r}: {str(first.get('input'))[:80]}",
            where=where,
            expected=first["msg"],
            mend=f"correct {key!r}; {error.error_count()} problem(s) in all",
        ) from None


def unknown_keys(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, nearest known key or nothing) of every key that the format is not known to have."""
    known = [*type(settings).model_fields]
    for key in settings.model_extra or {}:
        near = difflib.get_close_matches(key, known, n=1)
        yield f"{prefix}{key}", near[0] if near else ""
    for name in known:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from unknown_keys(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from unknown_keys(item, f"{prefix}{name}.{index}.")
