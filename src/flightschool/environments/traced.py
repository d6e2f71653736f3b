"""The environment that was built from traces, as data and as behaviour.

``TracedContent`` is everything that the digest covers and the workspace keeps; ``TracedEnvironment`` implements
``protocols.Environment`` on it, answering from recordings or from tool functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.digest import digest as content_digest
from flightschool.environments.code_world import CodeWorld
from flightschool.environments.coded import ToolFunction
from flightschool.environments.content_environment import ContentEnvironment
from flightschool.environments.imitation import Imitator
from flightschool.environments.inferred import Base, Program
from flightschool.environments.json_state import JsonBase
from flightschool.environments.ladder import Ladder, LadderWorld
from flightschool.environments.recordings import Recording, Recordings
from flightschool.environments.subsets import Subset, SubsetIndex
from flightschool.environments.users import LanguageUser, ScriptedUser, TalkingWorld, UserScript
from flightschool.errors import ConfigError
from flightschool.models import ChatModel
from flightschool.protocols import Environment, PermissionDecision, Permissions, World
from flightschool.records import Effect, Record, Reference, Task, ToolCall, ToolEvent, ToolSpec

__all__ = [
    "SCRIPTED",
    "AllowInventory",
    "RenamedEnvironment",
    "TracedContent",
    "TracedEnvironment",
    "Waiting",
]

SCRIPTED = "scripted"
"""Name of the user that speaks from the recording."""


class Waiting(Record, frozen=True, kw_only=True):
    """A recorded intent that nobody is known to have solved: it stays in the distribution and waits for an expert."""

    task: Task
    reason: str
    """Why there is no reference yet."""
    num_episodes: int
    acts: tuple[ToolCall, ...] | None = None
    """What ground truth says is to be done, where it says so."""


class TracedContent(Record, frozen=True, kw_only=True):
    """All that makes an environment from traces what it is."""

    policy_text: str
    strata: dict[str, float]
    """Stratum → share of the recorded episodes."""
    tasks: tuple[Task, ...]
    references: tuple[Reference, ...]
    tools: tuple[ToolSpec, ...]
    waiting: tuple[Waiting, ...] = ()
    """Tasks without a reference: not attempted, not scored, not forgotten."""
    declines: bool
    """Whether the environment adds ``decline``, because the traces have no such tool and tasks need it."""
    recordings: tuple[Recording, ...] = ()
    """Answers; empty where code answers."""
    programs: tuple[Program, ...] = ()
    """What was inferred of tools, and may answer."""
    subsets: tuple[Subset, ...] = ()
    """Arguments that never mattered."""
    scripts: tuple[UserScript, ...] = ()
    """What the users of the tasks know; empty: the whole brief is the instruction."""
    user: str = ""
    """Who speaks for the users: ``scripted`` or the endpoint of a language model; empty: nobody."""
    imitation: str = ""
    """Endpoint of a language model that invents answers of reads which nothing else knows; empty: nobody does."""
    state_digest: str = ""
    """Digest of the initial state that code runs on or recordings started from; empty if none was given."""
    code: str = ""
    """The module whose functions answer; empty where recordings do."""
    coded: tuple[str, ...] = ()
    """Tools that have a function, where others have none; empty: code answers all calls, or none."""
    code_digest: str = ""


class TracedEnvironment(ContentEnvironment[TracedContent]):
    """Implements ``protocols.Environment``. Immutable; worlds share recordings or the frozen initial state.

    Args:
        name: name in the workspace; not part of the digest.
        content: tasks, tools, references, recordings.
        functions: tool functions, if code answers.
        base: the initial state that the functions run on, where all tools have one.
        rows: the initial state that inferred tools run on, and the functions of some tools.
        models: endpoint → text model, for those that the content names.

    Raises:
        ConfigError: the content names an endpoint that no model was given for.
    """

    def __init__(
        self,
        name: str,
        content: TracedContent,
        functions: Mapping[str, ToolFunction] | None = None,
        base: JsonBase | None = None,
        *,
        rows: Base | None = None,
        models: Mapping[str, ChatModel] | None = None,
    ) -> None:
        super().__init__(name, content)
        self.digest = content_digest(content)
        self._functions = functions
        self._base = base or JsonBase({})
        self._rows = rows or Base({})
        self._ladder = Ladder(
            recordings=Recordings(content.recordings),
            subsets=SubsetIndex(content.subsets, content.recordings),
            programs={program.tool: program for program in content.programs},
            writes=frozenset(spec.name for spec in content.tools if spec.effect is not Effect.READ),
            declines=content.declines,
            imitator=self._imitator(models or {}),
            functions={name: one for name, one in (functions or {}).items() if name in content.coded},
        )
        self._scripts = {script.task: script for script in content.scripts}
        self._speaker = None if content.user in ("", SCRIPTED) else _model_of(content.user, models or {})

    def _imitator(self, models: Mapping[str, ChatModel]) -> Imitator | None:
        endpoint = self.content.imitation
        return Imitator(_model_of(endpoint, models), self.content.recordings) if endpoint else None

    def with_content(self, content: TracedContent, models: Mapping[str, ChatModel] | None = None) -> TracedEnvironment:
        """The same state, functions and name with another content."""
        return TracedEnvironment(self.name, content, self._functions, self._base, rows=self._rows, models=models)

    @property
    def functions(self) -> Mapping[str, ToolFunction]:
        """Functions of tools beside others that have none; empty where code answers all calls, or none."""
        return self._ladder.functions

    def permissions(self, task: Task) -> Permissions:
        """Every tool of the inventory is allowed, everything else denied."""
        del task
        return AllowInventory(self.content.tools)

    def open(self, task: Task) -> World:
        """A fresh world in the task's initial state."""
        world: World
        if self._functions is not None and not self.content.coded:
            world = CodeWorld.fresh(self._functions, self._base, declines=self.content.declines)
        else:
            world = LadderWorld(self._ladder, task.initial_state, self._rows.open())
        script = self._scripts.get(task.id)
        if script is None:
            return world
        speaker = self._speaker
        return TalkingWorld(world, ScriptedUser(script) if speaker is None else LanguageUser(script, speaker))


def _model_of(endpoint: str, models: Mapping[str, ChatModel]) -> ChatModel:
    if endpoint not in models:
        raise ConfigError(
            "the environment asks a language model that was not given",
            where=endpoint,
            expected="a model for the endpoint",
            mend="open it with load_environment",
        )
    return models[endpoint]


class AllowInventory:
    """Default deny, with one rule for each tool that the traces show (``protocols.Permissions``)."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = frozenset(spec.name for spec in tools)

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        """Allowed if the traces show the tool."""
        del events
        if call.name in self._tools:
            return PermissionDecision(allowed=True, rule=f"recorded-{call.name}", reason="the traces use this tool")
        return PermissionDecision(allowed=False, rule="default", reason="the traces do not show this tool")


class RenamedEnvironment:
    """A whole environment given by code, under another name and with traffic shares measured from traces.

    Args:
        name: name in the workspace.
        inner: the environment of the code.
        strata: stratum → share; empty keeps the environment's own.
    """

    def __init__(self, name: str, inner: Environment, strata: Mapping[str, float]) -> None:
        self.name = name
        self.inner = inner
        self.strata: Mapping[str, float] = dict(strata) or inner.strata
        self.digest = content_digest({"inner": inner.digest, "strata": dict(self.strata)})
        self.policy_text = inner.policy_text
        self.tasks = inner.tasks
        self.task = inner.task
        self.tools = inner.tools
        self.permissions = inner.permissions
        self.open = inner.open
        self.reference = inner.reference
