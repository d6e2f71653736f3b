"""What an environment would run or ask: told before a stranger's is trusted, and not done where nobody asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from flightschool.environments.declared import Declaration, DeclaredEnvironment
from flightschool.environments.foreign import ForeignContent
from flightschool.environments.traced import SCRIPTED, TracedContent
from flightschool.protocols import Environment
from flightschool.records import CheckRule, CheckSpec, CommandCheck, JudgeCheck, PanelCheck

__all__ = ["demands", "is_judged_elsewhere"]


def demands(code: str, content: TracedContent | ForeignContent | None, declared: Declaration | None) -> tuple[str, ...]:
    """What would run or be asked, in words, each once.

    Args:
        code: its code; empty: it has none.
        content: what is kept of it; None where code makes all of it.
        declared: its declared checks.
    """
    return tuple(dict.fromkeys(_demands(code, content, declared)))


def _demands(code: str, content: TracedContent | ForeignContent | None, declared: Declaration | None) -> Iterator[str]:
    if code:
        yield f"code {code}"
    checks = [check for one in (() if content is None else content.references) for check in one.checks]
    checks += [row.check for row in (() if declared is None else declared.checks)]
    for check in checks:
        yield from (f"a judge at {rule.endpoint}" for rule in _rules(check) if isinstance(rule, JudgeCheck))
    if isinstance(content, TracedContent):
        yield from (f"a model at {one}" for one in (content.user, content.imitation) if one not in ("", SCRIPTED))
    elif content is not None:
        key = f" with the key in {content.key_env}" if content.key_env else ""
        yield f"{content.ecosystem} at {content.address}{key}"


def is_judged_elsewhere(environment: Environment) -> bool:
    """Whether a declared check asks a model or starts a sandbox, so that judging a task takes time or money."""
    if not isinstance(environment, DeclaredEnvironment):
        return False
    rules = (rule for row in environment.declaration.checks for rule in _rules(row.check))
    return any(isinstance(rule, JudgeCheck | CommandCheck) for rule in rules)


def _rules(check: CheckSpec) -> Iterator[CheckRule]:
    """The rule of a check, and those of its members."""
    waiting: list[CheckRule] = [check.rule]
    while waiting:
        rule = waiting.pop()
        yield rule
        if isinstance(rule, PanelCheck):
            waiting += [member.rule for member in rule.members]
