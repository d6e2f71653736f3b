"""A price list as an environment that tests can break in one place at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

import msgspec
import pytest

from flightschool.digest import digest
from flightschool.errors import NotFoundError
from flightschool.protocols import PermissionDecision, Permissions, World
from flightschool.records import (
    CallCheck,
    CheckKind,
    CheckSpec,
    DiffCheck,
    Reference,
    SqlCheck,
    Task,
    ToolCall,
    ToolEvent,
    ToolSpec,
)
from flightschool.testing.miniature import TOOLS, MiniatureWorld

PRICES = {"bolt": 311, "gear": 174, "pump": 905, "seal": 588, "cog": 233}


class Everything:
    """Permits every call."""

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        return PermissionDecision(allowed=True, rule="all")


class PriceList:
    """Tasks "give ITEM the price of OTHER" and "locked" ones to be declined; every part can be replaced."""

    name = "price-list"
    policy_text = ""

    def __init__(self, prices: Mapping[str, int]) -> None:
        self.strata: Mapping[str, float] = {"copy": 0.8, "locked": 0.2}
        self.specs: tuple[ToolSpec, ...] = TOOLS
        self.by_id: dict[str, Task] = {}
        self.references: dict[str, Reference] = {}
        self.image = _image(prices)
        for item, other in permutations(prices, 2):
            self.add(_task(item, other), _reference(item, other, prices[other]))
        for item in prices:
            self.add(*_locked(item))

    def add(self, task: Task, reference: Reference) -> None:
        self.by_id[task.id], self.references[task.id] = task, reference

    def change(self, task_id: str, **fields: object) -> None:
        self.by_id[task_id] = msgspec.structs.replace(self.by_id[task_id], **fields)

    def recheck(self, task_id: str, *checks: CheckSpec) -> None:
        self.references[task_id] = msgspec.structs.replace(self.references[task_id], checks=checks)

    @property
    def digest(self) -> str:
        return digest([list(self.by_id.values()), list(self.references.values())])

    def tasks(self) -> Sequence[Task]:
        return tuple(self.by_id.values())

    def task(self, task_id: str) -> Task:
        if task_id not in self.by_id:
            raise NotFoundError(f"no task {task_id}")
        return self.by_id[task_id]

    def tools(self) -> Sequence[ToolSpec]:
        return self.specs

    def permissions(self, task: Task) -> Permissions:
        return Everything()

    def open(self, task: Task) -> World:
        return MiniatureWorld(self.image)

    def reference(self, task_id: str) -> Reference:
        if task_id not in self.references:
            raise NotFoundError(f"no reference {task_id}")
        return self.references[task_id]


def _image(prices: Mapping[str, int]) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table prices (item text primary key, price integer not null)")
    connection.executemany("insert into prices values (?, ?)", sorted(prices.items()))
    connection.commit()
    image = connection.serialize()
    connection.close()
    return image


def _task(item: str, other: str) -> Task:
    return Task(
        id=f"copy-{item}-{other}",
        family=f"from-{other}",
        stratum="copy",
        instruction=f"Give {item} the price of {other}.",
        initial_state="prices",
        guidance="Use the tools.",
        max_turns=5,
    )


def _reference(item: str, other: str, price: int) -> Reference:
    query = f"select price from prices where item = '{item}'"
    return Reference(
        task_id=f"copy-{item}-{other}",
        checks=(
            CheckSpec(id="price", kind=CheckKind.FUNCTIONAL, rule=SqlCheck(query=query, expected=((price,),))),
            CheckSpec(id="nothing-else", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={"prices": 1})),
        ),
        oracle=(
            ToolCall(id="1", name="get_price", arguments={"item": other}),
            ToolCall(id="2", name="set_price", arguments={"item": item, "price": price}),
        ),
    )


def _locked(item: str) -> tuple[Task, Reference]:
    task = Task(
        id=f"locked-{item}",
        family=f"locked-{item}",
        stratum="locked",
        instruction=f"Throw {item} away.",
        initial_state="prices",
        guidance="Nothing is thrown away: read its price, then decline.",
        max_turns=5,
    )
    read = CallCheck(tool="get_price", arguments={"item": item}, before="decline")
    checks = (
        CheckSpec(id="read", kind=CheckKind.FUNCTIONAL, rule=read),
        CheckSpec(id="declined", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="decline")),
        CheckSpec(id="unchanged", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={})),
    )
    oracle = (
        ToolCall(id="1", name="get_price", arguments={"item": item}),
        ToolCall(id="2", name="decline", arguments={"reason": "nothing is thrown away"}),
    )
    return task, Reference(task_id=task.id, checks=checks, oracle=oracle, abstain=True)


@pytest.fixture
def price_list() -> PriceList:
    """A sound environment, ready to be broken."""
    return PriceList(PRICES)


@pytest.fixture(scope="session")
def make_price_list() -> Callable[..., PriceList]:
    """Makes sound environments, of other prices if they are given."""
    return lambda prices=PRICES: PriceList(prices)
