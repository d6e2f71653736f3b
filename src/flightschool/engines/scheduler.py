"""Which sequence holds which slot, and what the next forward pass computes. No arithmetic here.

Order of admission: sessions that hold a slot go on first, then newcomers in the order they came; a newcomer takes a
free slot, else that of the idle session least recently used (which is computed anew, should it come back), else it
waits. Within a pass every running sequence gets its next token; prompts fill up what the pass may hold besides.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from flightschool.engines.grammar import GrammarWalk
from flightschool.engines.kv_cache import LEAST_COPIED, KvSlots, Prefix, PrefixPool, Session
from flightschool.engines.segments import Segment, order_decoding
from flightschool.protocols import Generation, GenerationRequest

__all__ = ["Counters", "Job", "Plan", "Scheduler", "keep_routes"]


@dataclass(eq=False)
class Counters:
    """Running counts; see ``torch_engine.EngineMetrics`` for what each means."""

    generated_tokens: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    prefix_hits: int = 0
    steps: int = 0
    evictions: int = 0
    weight_updates: int = 0
    busy_s: float = 0.0


@dataclass(eq=False)
class Job:
    """One request under way. It ends when its future is settled, by whomever."""

    request: GenerationRequest
    future: asyncio.Future[Generation]
    tokens: list[int]
    """Context so far: the request's tokens and what was generated."""
    room: int
    """Tokens that may be generated."""
    rng: random.Random
    logprobs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Weights step of each generated token."""
    walk: GrammarWalk | None = None
    """Where the completion stands in its grammar."""
    kept: list[float] = field(default_factory=list)
    """Log of the mass that the grammar kept, for each generated token; empty on the full support."""

    def pending(self, session: Session) -> tuple[int, ...]:
        """Tokens of the tail that are not in the cache yet."""
        return tuple(self.tokens[session.prefix_length + len(session.tail) :])


Row = tuple[Job, Session, Segment]


@dataclass(eq=False)
class Plan:
    """What one pass computes, in the order of its rows."""

    decoding: list[Row] = field(default_factory=list)
    filling: list[Row] = field(default_factory=list)
    prefixes: list[tuple[Prefix, Segment]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing to compute."""
        return not (self.decoding or self.filling or self.prefixes)


class Scheduler:
    """Owns sessions, slots and the queue of one engine.

    Args:
        tails: slots of sessions.
        pool: shared prefixes.
        max_step_tokens: most prompt tokens of one pass.
        counters: counts that are kept here.
    """

    def __init__(self, tails: KvSlots, pool: PrefixPool, max_step_tokens: int, counters: Counters) -> None:
        self.tails = tails
        self.pool = pool
        self._max_step_tokens = max_step_tokens
        self._count = counters
        self._sessions: dict[str, Session] = {}  # least recently used first
        self._queue: deque[Job] = deque()
        self._active: list[tuple[Job, Session]] = []

    @property
    def busy(self) -> bool:
        """Whether any job waits or runs."""
        return bool(self._queue or self._active)

    @property
    def session_names(self) -> tuple[str, ...]:
        """Sessions with a slot."""
        return tuple(self._sessions)

    def jobs(self) -> list[Job]:
        """All unsettled jobs, running ones first."""
        every = [*(job for job, _ in self._active), *self._queue]
        return [job for job in every if not job.future.done()]

    def session(self, name: str) -> Session | None:
        """What is cached of a session; None if nothing is."""
        return self._sessions.get(name)

    def add(self, job: Job) -> None:
        """Queue a job."""
        self._queue.append(job)

    def settle(self) -> None:
        """Jobs whose future is settled (answered, cancelled by the waiter, failed) leave."""
        for job, session in self._active:
            if job.future.done():
                session.active = False
        self._active = [(job, session) for job, session in self._active if not job.future.done()]
        self._queue = deque(job for job in self._queue if not job.future.done())

    def forget(self, name: str) -> None:
        """Free all that is kept of a session, if it is known and idle."""
        session = self._sessions.get(name)
        if session is not None and not session.active:
            self._drop(session)

    def weights_changed(self, keep_cache: bool) -> None:
        """New sessions compute their prefixes anew; without ``keep_cache`` everyone computes everything anew."""
        self.pool.forget()
        if not keep_cache:
            for session in self._sessions.values():
                self._clear(session)

    # -------------------------------------------------------------------------------------------- admission

    def admit(self) -> None:
        """Give slots to queued jobs."""
        known = [job for job in self._queue if job.request.session in self._sessions]
        new = [job for job in self._queue if job.request.session not in self._sessions]
        for job in [*known, *new]:
            session = self._session(job.request.session)
            if session is None:
                return
            self._queue.remove(job)
            self._begin(job, session)

    def _session(self, name: str) -> Session | None:
        session = self._sessions.pop(name, None)
        if session is None:
            slot = self.tails.take()
            if slot is None:
                idle = next((other for other in self._sessions.values() if not other.active), None)
                if idle is None:
                    return None
                self._count.evictions += 1
                self._drop(idle)
                slot = self.tails.take()
                assert slot is not None
            session = Session(name=name, slot=slot)
        self._sessions[name] = session
        return session

    def _begin(self, job: Job, session: Session) -> None:
        session.active = True
        self._active.append((job, session))
        if not session.keep(job.tokens[:-1]):  # the last token is always computed: its output is what is drawn from
            self._clear(session)
        if session.tail or session.prefix is not None:
            self._count.reused_tokens += len(session.tail) + session.prefix_length
        else:
            self._attach_prefix(job, session)

    def _attach_prefix(self, job: Job, session: Session) -> None:
        length = min(job.request.prefix_length, len(job.request.token_ids_T) - 1)
        if length < 1:
            return
        session.prefix, known = self.pool.acquire(tuple(job.tokens[:length]))
        if known:
            self._count.prefix_hits += 1
            self._count.reused_tokens += length

    def _clear(self, session: Session) -> None:
        """Forget what is cached of a session; it keeps its slot."""
        if session.prefix is not None:
            self.pool.release(session.prefix)
            session.prefix = None
        session.tail.clear()
        session.routes.clear()
        session.kv_step = None

    def _drop(self, session: Session) -> None:
        self._clear(session)
        self.tails.give(session.slot)
        del self._sessions[session.name]

    # -------------------------------------------------------------------------------------------- passes

    def plan(self) -> Plan:
        """What the next pass computes."""
        plan = Plan()
        budget = self._max_step_tokens
        planned: dict[Prefix, int] = {}
        waiting: set[Prefix] = set()
        for job, session in self._active:
            if session.prefix is None and not session.tail:
                self._attach_prefix(job, session)  # its cache was cleared under it
            prefix = session.prefix
            if prefix is not None:
                if prefix in waiting or (prefix.done == 0 and prefix not in planned and self._waits(prefix, planned)):
                    waiting.add(prefix)
                    continue
                done = planned.get(prefix, prefix.done)
                chunk = prefix.tokens[done : done + budget]
                if chunk:
                    plan.prefixes.append((prefix, Segment(prefix.slot, done, chunk)))
                    planned[prefix] = done = done + len(chunk)
                    budget -= len(chunk)
                if done < len(prefix.tokens):
                    continue  # a long prefix takes several passes; its sequences begin with the last of them
            pending = job.pending(session)
            if len(pending) > 1:
                pending = pending[:budget]
                budget -= len(pending)
            if pending:
                where = (-1, 0) if prefix is None else (prefix.slot, len(prefix.tokens))
                segment = Segment(session.slot, len(session.tail), pending, *where)
                (plan.decoding if len(pending) == 1 else plan.filling).append((job, session, segment))
        plan.decoding.sort(key=lambda row: order_decoding(row[2]))
        return plan

    def _waits(self, prefix: Prefix, planned: Mapping[Prefix, int]) -> bool:
        """Begin a prefix with what another has in common with it, or wait a pass while that is computed.

        Only what this very pass computes is waited for, so a wait always ends.
        """
        kin, length = self.pool.kin(prefix)
        if kin is None:
            return False
        if kin.done < length and kin in planned:
            return True
        usable = min(length, kin.done)
        if usable >= LEAST_COPIED:
            self.pool.begin_with(prefix, kin, usable)
            self._count.reused_tokens += usable
        return False

    def commit(self, plan: Plan, step: int) -> list[tuple[Job, Session, int]]:
        """Note what a pass under weights ``step`` has cached.

        Returns:
            The jobs whose next token can be drawn, each with the row of the pass to draw it from.
        """
        for prefix, segment in plan.prefixes:
            prefix.done = segment.end
            prefix.kv_step = step if prefix.kv_step is None else min(prefix.kv_step, step)
            self._count.prefill_tokens += len(segment.tokens)
        ready, row = [], -1
        for job, session, segment in [*plan.decoding, *plan.filling]:
            row += len(segment.tokens)
            self._count.prefill_tokens += len(segment.tokens) - bool(job.logprobs)
            session.tail.extend(segment.tokens)
            session.kv_step = step if session.kv_step is None else min(session.kv_step, step)
            if not job.pending(session):
                ready.append((job, session, row))
        return ready


def keep_routes(plan: Plan, rows: list[bytes]) -> None:
    """Note which experts a pass chose, row by row."""
    owners = [(session.routes, segment) for _, session, segment in [*plan.decoding, *plan.filling]]
    owners += [(prefix.routes, segment) for prefix, segment in plan.prefixes]
    place = 0
    for routes, segment in owners:
        routes += rows[place : place + len(segment.tokens)]
        place += len(segment.tokens)
