"""Peers: packages of other ecosystems, run by an interpreter of their own and asked in lines of JSON.

They pin each other's dependencies out of one interpreter, so none is ever imported here. One process an ecosystem and
interpreter serves all sessions of this process, one question at a time; when it dies, its sessions are opened anew in
the next one and brought back by their logs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from pathlib import Path

from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.lines import LineProcess
from flightschool.environments.foreign.world import LostSessionError, Observed
from flightschool.errors import InfrastructureError
from flightschool.records import Json, Task, ToolCall

__all__ = ["ECOSYSTEMS", "PeerProcess", "PeerSession", "connect_peer", "peer"]

ECOSYSTEMS: Mapping[str, str] = {
    "reasoning-gym": "reasoning_gym",
    "gymnasium": "gymnasium",
    "textarena": "textarena",
    "verifiers": "verifiers",
}
"""Name here → adapter."""
_SCRIPT = Path(__file__).with_name("peer_main.py")
_DESCRIBE_S = 1800.0
"""Begins every task once, and may load what is large."""
_START_S = 120.0
ANSWER_S = 120.0


class PeerRefusedError(InfrastructureError):
    """The peer's code raised."""


class PeerProcess:
    """One interpreter with one ecosystem.

    Args:
        python: the interpreter that has its packages.
        ecosystem: a key of ``ECOSYSTEMS``.
    """

    def __init__(self, python: str, ecosystem: str) -> None:
        # some generators walk through sets of texts: with another hash seed, equal seeds ask other questions
        self._lines = LineProcess([python, str(_SCRIPT), ECOSYSTEMS[ecosystem]], {"PYTHONHASHSEED": "0"})
        self._ids = itertools.count(1)
        self._asked_before = False

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._lines.alive

    def ask(self, do: str, **what: Json) -> Json:
        """One question and its answer.

        Raises:
            LostSessionError: it died, was late, or answered another question.
            PeerRefusedError: its code raised.
        """
        with self._lines.turn:
            number = next(self._ids)
            self._lines.tell({"id": number, "do": do, **what})
            answer = self._lines.hear(_DESCRIBE_S if do == "describe" else ANSWER_S if self._asked_before else _START_S)
            self._asked_before = True
        if not isinstance(answer, dict) or answer.get("id") != number:
            self._lines.close()
            raise LostSessionError(
                f"question {number} was answered by {str(answer)[:80]!r}",
                where=" ".join(self._lines.command),
                expected="an answer with the question's id",
                mend="the attempt is lost, not failed",
            )
        if "error" in answer:
            raise PeerRefusedError(
                f"the peer's code raised: {answer['error']}",
                where=f"{do} in {' '.join(self._lines.command[1:])}",
                expected="an answer",
                mend="try the same by hand in its interpreter",
            )
        return answer.get("ok")

    def close(self) -> None:
        """End it."""
        self._lines.close()


_processes: dict[tuple[str, str], PeerProcess] = {}
_lock = threading.Lock()


def peer(python: str, ecosystem: str) -> PeerProcess:
    """The process that serves an ecosystem here; a new one if there is none, or the old one died."""
    with _lock:
        found = _processes.get((python, ecosystem))
        if found is None or not found.alive:
            if found is not None:
                found.close()
            found = _processes[python, ecosystem] = PeerProcess(python, ecosystem)
        return found


def close_peers() -> None:
    """End all of them; they end with this process anyway, since their input does."""
    with _lock:
        for process in _processes.values():
            process.close()
        _processes.clear()


_sessions = itertools.count(1)


class PeerSession:
    """Implements ``ForeignSession``.

    Args:
        process: where the episode lives.
        source: what identifies the environment over there.
        start: what the episode is begun with.
    """

    def __init__(self, process: PeerProcess, source: Mapping[str, Json], start: Mapping[str, Json]) -> None:
        self._process = process
        self._source = dict(source)
        self._start = dict(start)
        self._number = next(_sessions)
        self._open = False

    def reset(self) -> Observed:
        """Begin."""
        self._open = True
        return _observed(self._process.ask("reset", session=self._number, source=self._source, start=self._start))

    def act(self, call: ToolCall) -> Observed:
        """One action. What its code raises on an action is an answer: the policy could have caused it."""
        try:
            return _observed(self._process.ask("act", session=self._number, tool=call.name, arguments=call.arguments))
        except PeerRefusedError as error:
            return Observed(value={"error": error.what}, is_error=True)

    def close(self) -> None:
        """Let the session go."""
        if self._open and self._process.alive:
            self._open = False
            try:
                self._process.ask("close", session=self._number)
            except InfrastructureError:
                return  # it is gone with its process


def connect_peer(content: ForeignContent, task: Task) -> PeerSession:
    """Open a task of an imported environment."""
    return PeerSession(peer(content.address, content.ecosystem), content.source, content.starts[task.id].start)


def _observed(answer: Json) -> Observed:
    if isinstance(answer, dict) and "broken" in answer:
        raise InfrastructureError(
            f"the rollout over there broke: {str(answer['broken'])[:400]}",
            where="peer",
            expected="an end that its own scoring judged",
            mend="the attempt is lost, not failed; run the environment over there to see why",
        )
    if not isinstance(answer, dict) or "value" not in answer:
        raise InfrastructureError(
            f"the peer answered {str(answer)[:80]!r}", where="peer", expected="an observation", mend="report the defect"
        )
    reward = answer.get("reward")
    if reward is not None and not isinstance(reward, int | float):
        raise InfrastructureError(
            f"a reward of {reward!r}", where="peer", expected="a finite number", mend="mend the environment over there"
        )
    return Observed(
        value=answer["value"],
        reward=None if reward is None else float(reward),
        done=answer.get("done") is True,
        is_error=answer.get("is_error") is True,
    )
