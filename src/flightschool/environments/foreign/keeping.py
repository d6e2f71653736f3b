"""An imported environment in the shape that the workspace keeps."""

from __future__ import annotations

from collections.abc import Collection

from flightschool.environments.built import BuiltEnvironment
from flightschool.environments.fidelity import Agreement, Fidelity
from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.environment import ForeignEnvironment
from flightschool.environments.inventory import InventoryEntry
from flightschool.environments.recordings import Share

__all__ = ["built_foreign"]


def built_foreign(name: str, content: ForeignContent, guessed: Collection[str] = ()) -> BuiltEnvironment:
    """The environment with the report of its making: there are no traces, so its fidelity counts nothing.

    Args:
        name: name in the workspace.
        content: what was imported.
        guessed: tools whose effects are guesses.
    """
    nothing = Share(hits=0, total=0)
    fidelity = Fidelity(
        calls=nothing,
        reads=nothing,
        writes=nothing,
        by_tool={},
        faulted=nothing,
        num_incomplete=0,
        num_unmatched=0,
        mismatches=(),
        agreement=Agreement(successes=nothing, failures=nothing),
    )
    inventory = tuple(
        InventoryEntry(
            spec=spec,
            effect_reason="guessed by name" if spec.name in guessed else "stated",
            schema_inferred=False,
            num_calls=0,
            num_errors=0,
        )
        for spec in content.tools
    )
    return BuiltEnvironment(
        environment=ForeignEnvironment(name, content),
        fidelity=fidelity,
        inventory=inventory,
        left_out=(),
        traces_digest="",
    )
