"""The generation station of a run: its engine, the episode runner, and published weights in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flightschool.digest import derive_random
from flightschool.engines.settings import EngineSettings
from flightschool.errors import InfrastructureError
from flightschool.perturbation import FaultProfile, profile
from flightschool.records import Attempt, EpisodeGroup, Task, WeightsVersion
from flightschool.rollouts import EnginePolicy, Policy, Sampling, Session
from flightschool.training.dispatcher import Part
from flightschool.training.folders import BlobFolder
from flightschool.training.placing import engine_device
from flightschool.training.settings import TrainingSettings

if TYPE_CHECKING:
    from flightschool.training.publication import WeightsFeed

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
        known: Mapping[int, Attempt] | None = None,
        keep: Callable[[Attempt], None] | None = None,
    ) -> EpisodeGroup:
        """``size`` attempts at one task; those that are ``known`` are not made again, others are told to ``keep``."""
        ...


class GenerationStation(Protocol):
    """What the orchestrator needs of generation."""

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float, part: Part
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


class _CountedPolicy(EnginePolicy):
    """Knows how much was sampled through it, by attempts that ended and by those that never did."""

    _sessions: tuple[Session, ...] = ()

    def endpoint(self, task: Task, seed: int, group: str) -> Session:
        """See ``EnginePolicy``."""
        session = super().endpoint(task, seed, group)
        self._sessions = (*self._sessions, session)
        return session

    @property
    def num_sampled(self) -> int:
        """Tokens, those of completions apart that the engine never gave back."""
        return sum(session.num_sampled for session in self._sessions)


class LocalGeneration:
    """Episodes in this process, over the engine that the configuration names.

    An engine in this process that dies is replaced, its groups are begun anew by the dispatcher.

    Args:
        settings: of the run.
        model: folder of the model that the run began with.
        runner: runs episodes.
        run: id of the run.
        weights: file through which the trainer publishes.
        engine: what samples; our own by default.
        publish_to: where weights for a served engine are written, if its settings name no folder.
        routing: folder for experts that are chosen; None: they are not kept.
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
        routing: Path | None = None,
    ) -> None:
        from flightschool.engines.opening import open_engine

        self._engine_settings = engine or EngineSettings()
        self._settings = settings
        self._runner = runner
        self._run = run
        self._weights_file = weights
        self._noise: FaultProfile | None = profile(settings.noise) if settings.noisy_share > 0.0 else None
        self._opened = open_engine(
            self._engine_settings,
            model,
            run=run,
            device=engine_device(settings, self._engine_settings),
            dtype=settings.dtype,
            max_context=settings.max_context,
            num_threads=settings.num_threads,
            publish_to=publish_to,
        )
        self.engine = self._opened.engine
        self._connected = False
        self._version: WeightsVersion | None = None
        self._feed: WeightsFeed | None = None
        self._waits = settings.publication == "broadcast"
        self._name = f"run:{run}"
        keeps = routing is not None and self._opened.routed and settings.routing_replay
        self._keep_routing = BlobFolder(routing).put if routing is not None and keeps else None

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float, part: Part
    ) -> EpisodeGroup:
        """See ``GenerationStation``.

        Raises:
            InfrastructureError: the engine died meanwhile; another one has taken its place.
        """
        noisy = self._noise is not None and is_noisy(self._settings, seed)
        engine = self.engine
        policy = self._policy(temperature)
        try:
            made = await self._runner.group(
                task,
                policy,
                size=self._settings.group_size,
                group=group,
                admitted_step=admitted_step,
                seed=seed,
                weather_profile=self._noise if noisy else None,
                known=part.known,
                keep=part.keep,
            )
        finally:  # also where the runner raises what the engine died of, or the try is cancelled
            part.sampled(policy.num_sampled + engine.take_cut_tokens())
            if engine.died and engine is self.engine and self._opened.renew is not None:
                self.engine = self._opened.renew(self._version)
        if engine.died:
            raise InfrastructureError(
                engine.died, where=f"group {group}", expected="an engine that lives", mend="see the incident before it"
            )
        return made

    def _policy(self, temperature: float) -> _CountedPolicy:
        sampling = Sampling(
            temperature=temperature,
            max_new_tokens=self._settings.max_new_tokens,
            constrained=self._engine_settings.constrain_calls,
        )
        return _CountedPolicy(self.engine, self._opened.tokenizer, self._name, sampling, self._keep_routing)

    async def apply_weights(self, version: WeightsVersion) -> None:
        """See ``GenerationStation``; verified before the engine sees them, and again as it serves them.

        Raises:
            InfrastructureError: the published bytes do not have their digest, or the engine serves others.
        """
        from flightschool.training.publication import make_feed
        from flightschool.training.publisher import check_served

        if not self._connected:
            await self._opened.connect()
            self._connected = True
        model = self._opened.model
        if self._feed is None:
            like = {} if model is None else dict(model.named_parameters())
            self._feed = make_feed(self._settings, self._weights_file, like)
        state = await asyncio.to_thread(self._feed.read, version) if self._waits else self._feed.read(version)
        await self.engine.load_weights(version, state, keep_cache=self._engine_settings.keep_cache)
        if model is not None:  # of a server, its client has verified them
            check_served(model, state, version)
        self._feed.release()  # the engine has copied them
        self._version = version

    async def close(self) -> None:
        """End the engine; a server goes on."""
        await self.engine.aclose()
