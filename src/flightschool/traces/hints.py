"""What traces say beside the conversation: task, family, outcome … under the names that people use.

One table, read and written by every format that has room for free metadata, so that an export can be imported again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flightschool.records import Json, ToolCall
from flightschool.traces.conversation import usage_of
from flightschool.traces.loading import broken
from flightschool.traces.records import RecordedEpisode, TaskHint, Usage

__all__ = ["Facts", "facts_of", "metadata_table"]

_OWN = frozenset(
    {
        "id",
        "task",
        "task_id",
        "family",
        "stratum",
        "trial",
        "instruction",
        "actions",
        "outputs",
        "success",
        "outcome",
        "reward",
        "issues",
        "started_at",
    }
)
_GOOD = frozenset({"success", "succeeded", "passed", "pass", "solved", "true", "ok"})
_BAD = frozenset({"failure", "failed", "fail", "unsolved", "false", "error", "policy_failure"})


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata taken apart."""

    id: str
    hint: TaskHint
    success: bool | None
    reward: float | None
    rest: dict[str, Json]
    issues: tuple[str, ...]
    labels: dict[str, Json]
    started_at: str
    usage: Usage | None


def facts_of(table: dict[str, Any], where: str) -> Facts:
    """Take a metadata table apart. Raises ``TraceError`` for a known key with a value of the wrong kind."""
    reward = _typed(table, "reward", (int, float), where)
    return Facts(
        id=_text(table.get("id")),
        hint=TaskHint(
            id=_text(table["task"] if table.get("task") is not None else table.get("task_id")),
            family=_text(table.get("family")),
            stratum=_text(table.get("stratum")),
            trial=int(_typed(table, "trial", (int,), where) or 0),
            instruction=_text(table.get("instruction")),
            actions=_actions(table, where),
            outputs=tuple(str(o) for o in _typed(table, "outputs", (list,), where) or ()),
        ),
        success=_success(table, reward, where),
        reward=None if reward is None else float(reward),
        rest={key: value for key, value in table.items() if key not in _OWN and not _is_ours(key, value)},
        issues=tuple(str(issue) for issue in _typed(table, "issues", (list,), where) or ()),
        labels=table["labels"] if _is_ours("labels", table.get("labels")) else {},
        started_at=_text(table.get("started_at")),
        usage=usage_of(table.get("usage")),
    )


def metadata_table(episode: RecordedEpisode) -> dict[str, Json]:
    """The table that ``facts_of`` reads back to the same facts."""
    hint = episode.hint
    table: dict[str, Json] = {**episode.metadata, "id": episode.id}
    texts = {"task": hint.id, "family": hint.family, "stratum": hint.stratum, "instruction": hint.instruction}
    table |= {key: text for key, text in texts.items() if text}
    if hint.trial:
        table["trial"] = hint.trial
    if hint.actions is not None:
        table["actions"] = [msgspec.to_builtins(action) for action in hint.actions]
    if hint.outputs:
        table["outputs"] = list(hint.outputs)
    if episode.success is not None:
        table["success"] = episode.success
    if episode.reward is not None:
        table["reward"] = episode.reward
    if episode.labels:
        table["labels"] = episode.labels
    if episode.started_at:
        table["started_at"] = episode.started_at
    if episode.usage is not None:
        table["usage"] = msgspec.to_builtins(episode.usage)
    if episode.issues:
        table["issues"] = list(episode.issues)
    return table


def _text(value: Json) -> str:
    return "" if value is None else str(value)


def _typed(table: dict[str, Any], key: str, kinds: tuple[type, ...], where: str) -> Any:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise broken(
            f"metadata {key!r} is {value!r}",
            where,
            " or ".join(k.__name__ for k in kinds),
            f"correct or remove {key!r}",
        )
    return value


def _is_ours(key: str, value: Json) -> bool:
    """Whether a key with a common name holds what we mean by it; teams call other things labels and usage, too."""
    if key == "usage":
        return usage_of(value) is not None
    return key == "labels" and isinstance(value, dict)


def _actions(table: dict[str, Any], where: str) -> tuple[ToolCall, ...] | None:
    raw = _typed(table, "actions", (list,), where)
    if raw is None:
        return None
    calls = []
    for number, item in enumerate(raw):
        arguments = item.get("arguments", item.get("kwargs", {})) if isinstance(item, dict) else None
        if not isinstance(arguments, dict) or not isinstance(item.get("name"), str):
            raise broken(
                "a ground-truth action cannot be read",
                f"{where}, action {number}",
                "{name, arguments}",
                "mend or remove it",
            )
        calls.append(ToolCall(id=str(item.get("id", f"action-{number}")), name=item["name"], arguments=arguments))
    return tuple(calls)


def _success(table: dict[str, Any], reward: float | None, where: str) -> bool | None:
    value = table.get("success")
    value = table.get("outcome") if value is None else value
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _GOOD | _BAD:
        return value.lower() in _GOOD
    if isinstance(value, int | float):
        return value >= 1
    if isinstance(value, str) and value and value.lower() not in {"unknown", "none", "scored"}:
        raise broken(f"unknown outcome {value!r}", where, "success, failure, true, false or a reward", "rename it")
    return None if reward is None else reward >= 1
