"""A frozen suite as an Inspect task: ``inspect eval flightschool/flightschool_suite -T suite=checkride --model …``.

Run by Inspect, in an environment that has both packages, inside the workspace (or ``-T workspace=FOLDER``; Inspect
loads a task from the folder of its file, so relative folders are those of the shell). Everything
but the model is ours and as frozen: tasks, worlds, tools, permissions, weather, limits, grading. Inspect brings models,
concurrency, retries and its viewer. ``flightschool eval import LOG --suite S`` takes the log back and judges every
attempt again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    get_model,
)
from inspect_ai.scorer import Score, accuracy, scorer, stderr
from inspect_ai.solver import solver
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import LimitExceededError

from flightschool.digest import derive_seed
from flightschool.environments import load_environment
from flightschool.errors import StoreError
from flightschool.evaluation import RunRules, load_design, load_suite, require_design
from flightschool.evaluation.exchange.own import KEY
from flightschool.evaluation.limiting import LimitedPolicy
from flightschool.governance import served
from flightschool.lineage import canary
from flightschool.perturbation import profile
from flightschool.protocols import Environment
from flightschool.records import Attempt, EndReason, Message, Outcome, Suite, TokenUse, ToolCall, ToolSpec
from flightschool.records import Task as OurTask
from flightschool.rollouts import EpisodeEndError, EpisodeRunner, PolicyEndpoint
from flightschool.store import Workspace
from flightschool.verification import OutcomeReward, current_reward

__all__ = ["flightschool_suite"]


@task  # type: ignore[untyped-decorator, unused-ignore]
def flightschool_suite(
    suite: str = "checkride", workspace: str = ".", perturb: str = "clean", repeats: int = 1, seed: int = 0
) -> Any:
    """The suite as it was frozen. Raises what ``load_suite`` and ``require_design`` raise."""
    with _workspace(workspace) as space:
        named = space.store.get("suite", suite, Suite)
        world = served(space.store, load_environment(named.environment, space))
        frozen = load_suite(space.store, suite, world)
        design, reward = load_design(space.store, suite), current_reward(space.store)
    weather = profile(perturb)
    rules = RunRules()
    if design is not None:
        require_design(design, frozen, world, composition=reward, faults={weather.label: weather.digest})
        rules = design.rules
    header = {
        "suite": frozen.name,
        "suite_digest": frozen.digest,
        "noise": weather.label,
        "noise_digest": "" if weather.is_clean else weather.digest,
        "composition_digest": reward.digest,
        "seed": seed,
        "rules": msgspec.to_builtins(rules),
    }
    mark = canary(frozen.digest)
    samples = [
        Sample(id=task_id, input=world.task(task_id).instruction, target="", metadata={"canary": mark})
        for task_id in frozen.task_digests
    ]
    return Task(
        name=frozen.name,
        dataset=MemoryDataset(samples, name=frozen.name),
        solver=_fly(world, frozen, reward, None if weather.is_clean else weather, rules, seed),
        scorer=_graded(),
        epochs=Epochs(repeats, "mean"),
        metadata={KEY: header, "canary": mark},
    )


def _workspace(folder: str) -> Workspace:
    """Inspect changes into the folder of a task's file before it loads it; the shell's folder still stands in PWD."""
    try:
        return Workspace.find(Path(folder))
    except StoreError:
        return Workspace.find(Path(os.environ.get("PWD", ".")) / folder)


@solver  # type: ignore[untyped-decorator, unused-ignore]
def _fly(world: Environment, suite: Suite, reward: OutcomeReward, weather: Any, rules: RunRules, seed: int) -> Any:
    runner = EpisodeRunner(world, reward, run="inspect")

    async def solve(state: Any, generate: Any) -> Any:
        del generate  # our harness asks the model itself
        one = world.task(str(state.sample_id))
        policy: Any = _InspectPolicy()
        if rules.limits.any:
            policy = LimitedPolicy(policy, rules.limits, None)
        attempt = await runner.attempt(
            one,
            policy,
            group=f"inspect:{one.id}",
            index=state.epoch - 1,
            seed=derive_seed("evaluation", suite.digest, seed, one.id, state.epoch - 1),
            weather_profile=weather,
        )
        state.metadata = {**state.metadata, KEY: {"attempt": msgspec.to_builtins(attempt)}}
        if attempt.outcome is Outcome.INFRA_FAILURE:
            raise RuntimeError(f"{attempt.reason}: {attempt.detail}")  # an error of the sample, never a 0
        state.messages = [_to_inspect(message) for message in attempt.messages]
        state.completed = True
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])  # type: ignore[untyped-decorator, unused-ignore]
def _graded() -> Any:
    async def score(state: Any, target: Any) -> Any:
        del target  # truths lie behind the boundary, not in the sample
        attempt = msgspec.convert(state.metadata[KEY]["attempt"], Attempt)
        passed = attempt.reward is not None and attempt.reward.success
        violations = attempt.verdict.violations if attempt.verdict is not None else ()
        return Score(value="C" if passed else "I", explanation=", ".join(violations) or str(attempt.reason))

    return score


class _InspectPolicy:
    """The model that Inspect runs, as a policy."""

    def __init__(self) -> None:
        self.model = get_model()
        self.name = f"inspect:{self.model}"

    def endpoint(self, one: OurTask, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """A conversation of its own."""
        return _Endpoint(self.model)


class _Endpoint:
    """One attempt's conversation."""

    def __init__(self, model: Any) -> None:
        self.generation_ms = 0.0
        self.usage = TokenUse(num_prompt_tokens=0, num_completion_tokens=0)
        self._model = model
        self._turns = 0

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next message. Raises ``EpisodeEndError`` when the model cannot be reached."""
        asked = [_to_inspect(message) for message in messages if message.content or message.role != "system"]
        shown = [
            ToolInfo(
                name=spec.name, description=spec.description, parameters=ToolParams.model_validate(spec.parameters)
            )
            for spec in tools
        ]
        try:
            output = await self._model.generate(asked, tools=shown)
        except LimitExceededError:  # Inspect's own limits end the sample, as it tells
            raise
        except Exception as error:  # every provider raises the errors of its own client
            raise EpisodeEndError(EndReason.ENGINE_ERROR, f"{type(error).__name__}: {error}") from error
        if output.usage is not None:
            self.usage = TokenUse(
                num_prompt_tokens=self.usage.num_prompt_tokens + output.usage.input_tokens,
                num_completion_tokens=self.usage.num_completion_tokens + output.usage.output_tokens,
            )
        self._refuse_cut(output)
        said = output.message
        calls = tuple(
            ToolCall(id=call.id, name=call.function, arguments=dict(call.arguments)) for call in said.tool_calls or ()
        )
        return Message(role="assistant", content=said.text, tool_calls=calls)

    def _refuse_cut(self, output: Any) -> None:
        """Inspect hands on refusals and cut answers as text; who could have caused them is as in ``EndpointPolicy``."""
        self._turns += 1
        if output.error or output.stop_reason == "model_length":
            reason = EndReason.CONTEXT_FULL if self._turns > 1 else EndReason.ENGINE_ERROR
            raise EpisodeEndError(reason, str(output.error or output.stop_reason))
        if output.stop_reason == "max_tokens":
            raise EpisodeEndError(EndReason.TRUNCATED, f"turn {self._turns} was cut at its limit of tokens")

    def spans(self) -> tuple[()]:
        """None: tokens of foreign models are not known."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


def _to_inspect(message: Message) -> Any:
    if message.role == "system":
        return ChatMessageSystem(content=message.content)
    if message.role == "user":
        return ChatMessageUser(content=message.content)
    if message.role == "tool":
        return ChatMessageTool(content=message.content, tool_call_id=message.tool_call_id)
    calls = [
        InspectCall(id=call.id, function=call.name, arguments=json.loads(json.dumps(call.arguments)), type="function")
        for call in message.tool_calls
    ]
    return ChatMessageAssistant(content=message.content, tool_calls=calls or None)
