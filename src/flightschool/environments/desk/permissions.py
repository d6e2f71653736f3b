"""Least privilege at the desk, as rules: reading always, writing and sending with the tools of the task.

What can be taken back is allowed and judged afterwards; what cannot (destroying) the boundary itself bars until an
approval for this very part was requested and read as granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.governance import AfterCall, Rule, RuleEffect, RuleSet
from flightschool.records import Effect, ToolSpec

__all__ = ["rules_for"]


def rules_for(shown: Sequence[str], tools: Sequence[ToolSpec], names: Mapping[str, str]) -> RuleSet:
    """Rules of a task that shows ``shown``.

    Args:
        shown: visible names of the task's tools.
        tools: all tools, by their visible names.
        names: the desk's own tool name → visible name.
    """
    granted = (
        AfterCall(tool=names["request_approval"], arguments={"action": "scrap"}, matching={"part": "subject"}),
        AfterCall(tool=names["get_approval"], result={"action": "scrap", "state": "granted"}),
    )
    reads = tuple(tool.name for tool in tools if tool.effect is Effect.READ)
    acts = tuple(tool.name for tool in tools if tool.effect in (Effect.WRITE, Effect.SEND) and tool.name in shown)
    destroys = tuple(tool.name for tool in tools if tool.effect is Effect.DESTROY and tool.name in shown)
    rules = [
        Rule(name="read-anything", tools=reads, effect=RuleEffect.ALLOW),
        Rule(name="act-with-the-tools-of-the-task", tools=acts, effect=RuleEffect.ALLOW),
        Rule(
            name="destroy-when-approved",
            tools=destroys,
            effect=RuleEffect.ALLOW,
            when=granted,
            reason="needs a granted approval for this part",
        ),
    ]
    return RuleSet([rule for rule in rules if rule.tools])
