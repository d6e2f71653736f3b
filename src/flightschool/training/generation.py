"""The generation station of a run: its engine, the episode runner, and published weights in between."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from flightschool.digest import derive_random
from flightschool.engines.settings import EngineSettings
from flightschool.perturbation import FaultProfile, profile
from flightschool.records import EpisodeGroup, Task, WeightsVersion
from flightschool.rollouts import EnginePolicy, Policy, Sampling
from flightschool.training.settings import TrainingSettings

__all__ = ["GenerationStation", "GroupRunner", "LocalGeneration", "is_noisy"]


class GroupRunner(Protocol):
    """What a run needs of ``rollouts.EpisodeRunner``."""

    async def group(
        self,
        task: Task,
        policy: Policy,
        *,
        size: int,
        group: str,
        admitted_step: int,
        seed: int,
        weather_profile: FaultProfile | None = None,
    ) -> EpisodeGroup:
        """``size`` attempts at one task."""
        ...


class GenerationStation(Protocol):
    """What the orchestrator needs of generation."""

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float
    ) -> EpisodeGroup:
        """Generate and judge one group."""
        ...

    async def apply_weights(self, version: WeightsVersion) -> None:
        """Use a published version from the next decode step on."""
        ...

    async def close(self) -> None:
        """Free the engine."""
        ...


def is_noisy(settings: TrainingSettings, seed: int) -> bool:
    """Whether the group of this seed meets the noise: a whole group does, or none of it."""
    return derive_random("noisy-group", seed).random() < settings.noisy_share


class LocalGeneration:
    """Episodes in this process, over the engine that the configuration names.

    Args:
        settings: of the run.
        model: folder of the model that the run began with.
        runner: runs episodes.
        run: id of the run.
        weights: file through which the trainer publishes.
        engine: what samples; our own by default.
        publish_to: where weights for a served engine are written, if its settings name no folder.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        model: Path,
        runner: GroupRunner,
        run: str,
        weights: Path,
        engine: EngineSettings | None = None,
        publish_to: Path | None = None,
    ) -> None:
        from flightschool.engines.opening import open_engine

        self._engine_settings = engine or EngineSettings()
        self._settings = settings
        self._runner = runner
        self._weights_file = weights
        self._noise: FaultProfile | None = profile(settings.noise) if settings.noisy_share > 0.0 else None
        self._opened = open_engine(
            self._engine_settings,
            model,
            run=run,
            device=settings.device,
            max_context=settings.max_context,
            num_threads=settings.num_threads,
            publish_to=publish_to,
        )
        self.engine = self._opened.engine
        self._connected = False
        self._name = f"run:{run}"

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float
    ) -> EpisodeGroup:
        """See ``GenerationStation``."""
        noisy = self._noise is not None and is_noisy(self._settings, seed)
        return await self._runner.group(
            task,
            self._policy(temperature),
            size=self._settings.group_size,
            group=group,
            admitted_step=admitted_step,
            seed=seed,
            weather_profile=self._noise if noisy else None,
        )

    def _policy(self, temperature: float) -> Policy:
        sampling = Sampling(
            temperature=temperature,
            max_new_tokens=self._settings.max_new_tokens,
            constrained=self._engine_settings.constrain_calls,
        )
        return EnginePolicy(self.engine, self._opened.tokenizer, self._name, sampling)

    async def apply_weights(self, version: WeightsVersion) -> None:
        """See ``GenerationStation``; the weights are verified by their digest before the engine sees them."""
        from flightschool.training.publisher import WeightsReader

        if not self._connected:
            await self._opened.connect()
            self._connected = True
        with WeightsReader(self._weights_file) as reader:
            state = reader.read(version)
            await self.engine.load_weights(version, state, keep_cache=self._engine_settings.keep_cache)
            reader.release()  # the engine has copied them

    async def close(self) -> None:
        """End the engine; a server goes on."""
        await self.engine.aclose()
