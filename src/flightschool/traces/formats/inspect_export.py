"""Export as an Inspect log (``.eval``): one archive, one sample an episode, readable by Inspect's reader and viewer.

Outcome and labels are scores. What samples have no place for goes into ``metadata.flightschool``. Times inside the
archive are fixed: equal episodes give equal bytes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.records import Json, Message
from flightschool.traces.formats.openai_chat import chat_tool
from flightschool.traces.formats.own import call_extras, shared_losses, turn_extras
from flightschool.traces.hints import metadata_table
from flightschool.traces.records import RecordedCall, RecordedEpisode

__all__ = ["export_inspect", "inspect_header", "inspect_losses", "inspect_sample", "write_inspect_archive"]

_WHEN = "2023-11-14T22:13:20+00:00"
_ZIP_TIME = (2023, 11, 14, 22, 13, 20)
_MODEL = "recorded/unknown"


def export_inspect(episodes: Iterable[RecordedEpisode], file: IO[bytes]) -> None:
    """Write the archive."""
    write_inspect_archive(file, map(inspect_sample, episodes), inspect_header)


def write_inspect_archive(
    file: IO[bytes], samples: Iterable[dict[str, Any]], header_of: Callable[[list[str]], dict[str, Any]]
) -> int:
    """Write samples one by one and the header that is made of their ids last; returns the number of samples."""
    summaries: list[dict[str, Json]] = []
    ids: list[str] = []
    names: dict[str, str] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for sample in samples:
            ids.append(sample["id"])
            name = names.setdefault(sample["id"], _file_name(sample["id"], len(ids)))
            _write(archive, f"samples/{name}_epoch_{sample['epoch']}.json", sample)
            kept = ("id", "epoch", "input", "target", "scores", "error")
            summaries.append({key: _summed(sample, key) for key in kept if key in sample})
        header = header_of(ids)
        _write(archive, "_journal/start.json", {key: header[key] for key in ("version", "eval", "plan")})
        _write(archive, "summaries.json", summaries)
        _write(archive, "header.json", header)
    return len(ids)


def _summed(sample: dict[str, Any], key: str) -> Json:
    """What a summary shows of a sample: of an error its message alone."""
    return sample[key]["message"] if key == "error" else sample[key]


def inspect_losses(episode: RecordedEpisode) -> list[str]:
    """Kinds of what a sample does not hold."""
    lost = shared_losses(episode)
    return [*lost, "sub-agents and branches"] if episode.children else lost


def _write(archive: zipfile.ZipFile, name: str, value: Json) -> None:
    info = zipfile.ZipInfo(name, _ZIP_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, canonical_json(value))


def _file_name(episode_id: str, number: int) -> str:
    """The reader looks a sample up by its id; an id that cannot name a file is numbered."""
    plain = episode_id.isascii() and all(char.isalnum() or char in "-_." for char in episode_id)
    return episode_id if plain and len(episode_id) < 120 else f"sample-{number}"


def inspect_header(ids: list[str]) -> dict[str, Any]:
    """The header of a log of these samples."""
    name = content_digest(ids).removeprefix("sha256:")[:22]
    total = len(ids)
    spec: dict[str, Json] = {
        "eval_id": name,
        "run_id": name,
        "created": _WHEN,
        "task": "recorded",
        "task_id": name,
        "task_version": 0,
        "dataset": {"name": "recorded", "samples": total, "sample_ids": ids},
        "model": _MODEL,
        "config": {"epochs": 1},
    }
    return {
        "version": 2,
        "status": "success",
        "eval": spec,
        "plan": {"name": "recorded", "steps": [], "config": {}},
        "results": {"total_samples": total, "completed_samples": total, "scores": []},
        "stats": {"started_at": _WHEN, "completed_at": _WHEN, "model_usage": {}},
    }


def inspect_sample(episode: RecordedEpisode) -> dict[str, Any]:
    """An episode as a sample."""
    own = metadata_table(episode)
    calls = {call.id: call_extras(call) for call in episode.calls}
    turns = [{"turn": turn.turn, **turn_extras(turn)} for turn in episode.turns]
    tools = [chat_tool(spec, spec.name in episode.stated_effects) for spec in episode.tools]
    extra: dict[str, Json] = {"_calls": calls, "_turns": turns, "_tools": tools}
    own |= {key: value for key, value in extra.items() if value}
    by_id = {call.id: call for call in episode.calls}
    return {
        "id": episode.id,
        "epoch": 1,
        "input": episode.instruction,
        "target": "",
        "messages": [_message(message, by_id) for message in episode.messages],
        "output": {"model": _MODEL, "choices": [], "completion": ""},
        "scores": _scores(episode),
        "metadata": {"flightschool": own},
        "store": {},
        "events": [],
        "model_usage": {},
        "attachments": {},
    }


def _scores(episode: RecordedEpisode) -> dict[str, Json]:
    scores: dict[str, Json] = {
        name: {"value": value} for name, value in episode.labels.items() if isinstance(value, bool | int | float | str)
    }
    if episode.success is not None:
        scores["success"] = {"value": "C" if episode.success else "I"}
    if episode.reward is not None:
        scores["reward"] = {"value": episode.reward}
    return scores


def _message(message: Message, calls: dict[str, RecordedCall]) -> dict[str, Json]:
    line: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        line["tool_calls"] = [
            {"id": c.id, "function": c.name, "arguments": c.arguments, "type": "function"} for c in message.tool_calls
        ]
    if message.role == "tool":
        call = calls.get(message.tool_call_id)
        line["tool_call_id"] = message.tool_call_id
        if call is not None:
            line["function"] = call.name
            if call.is_error:
                line["error"] = {"type": "unknown", "message": message.content}
    return line
