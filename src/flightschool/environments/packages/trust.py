"""What an environment would run or ask: told before a stranger's is trusted, and not done where nobody asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from flightschool.environments.declared import Declaration, DeclaredEnvironment
from flightschool.environments.foreign import ForeignContent
from flightschool.environments.traced import SCRIPTED, TracedContent
from flightschool.protocols import Environment
from flightschool.records import JudgeCheck
from flightschool.verification import rules_in

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
        yield from (f"a judge at {rule.endpoint}" for rule in rules_in(check.rule) if isinstance(rule, JudgeCheck))
    if isinstance(content, TracedContent):
        yield from (f"a model at {one}" for one in (content.user, content.imitation) if one not in ("", SCRIPTED))
    elif content is not None:
        key = f" with the key in {content.key_env}" if content.key_env else ""
        yield f"{content.ecosystem} at {content.address}{key}"


def is_judged_elsewhere(environment: Environment) -> bool:
    """Whether a declared check asks a model or starts a sandbox, so that judging a task takes time or money."""
    return isinstance(environment, DeclaredEnvironment) and environment.declaration.waits
