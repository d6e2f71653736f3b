"""Messages in any of the shapes that providers and frameworks use, as messages of the OpenAI chat format.

Read are: chat messages; Anthropic content blocks (``tool_use``, ``tool_result``, ``thinking``); items of the Responses
API (``function_call``, ``function_call_output``, ``reasoning``); parts of the GenAI conventions (``tool_call``,
``tool_call_response``); messages of LangChain, plain or as serialised constructors. What comes out may carry
``reasoning_content``, ``model``, ``usage``, ``start_ms`` and ``end_ms`` beside the fields of the format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from flightschool.records import Json
from flightschool.traces.conversation import content_text
from flightschool.traces.formats.truncation import looks_truncated
from flightschool.traces.loading import result_value, table_at

__all__ = ["Note", "parsed_text", "to_chat"]

Note = Callable[[str], None]
"""Takes a sentence about something that was left out or cut off."""

_LANGCHAIN = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "developer": "system"}
_CALL_ITEMS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUT_ITEMS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_ITEMS = _CALL_ITEMS | _OUTPUT_ITEMS | {"message", "reasoning"}
_KEPT = ("model", "usage", "start_ms", "end_ms")


def to_chat(raw: Json, note: Note, *, role: str = "user") -> list[dict[str, Any]]:
    """Messages in the shape of the chat format.

    Args:
        raw: a list of messages, one message, an object with ``messages``, or a text.
        note: told what is left out.
        role: of what names no role itself.
    """
    raw = parsed_text(raw)
    if raw is None:
        return []
    if isinstance(raw, dict):
        inner = next((raw[key] for key in ("messages", "input", "output") if isinstance(raw.get(key), list)), None)
        if inner is not None and "role" not in raw and "type" not in raw:
            return to_chat(inner, note, role=role)
        raw = [raw]
    if not isinstance(raw, list):
        return [{"role": role, "content": str(raw)}]
    if len(raw) == 1 and isinstance(raw[0], list):
        raw = raw[0]  # a batch of one
    messages: list[dict[str, Any]] = []
    for item in raw:
        _append(messages, item, note, role)
    return messages


def parsed_text(raw: Json) -> Json:
    """JSON that was written as text, parsed; everything else as it is."""
    if isinstance(raw, str) and raw.lstrip()[:1] in {"{", "["}:
        return result_value(raw)
    return raw


def _append(messages: list[dict[str, Any]], item: Json, note: Note, role: str) -> None:
    if isinstance(item, str):
        messages.append({"role": role, "content": item})
    elif not isinstance(item, dict):
        note("a message is no object and was left out")
    elif isinstance(item.get("parts"), list):
        messages.extend(_from_parts(item, note, role))
    elif item.get("type") in _ITEMS and not (item["type"] == "message" and item.get("role") not in _ROLES):
        _from_item(messages, item, note)
    elif str(item.get("type", "")).endswith("_call") and "role" not in item:
        note(f"an item of type {item['type']} was left out")
    elif "lc" in item or item.get("type") in _LANGCHAIN or item.get("type") == "constructor":
        messages.extend(_from_langchain(item, note, role))
    elif "role" not in item and not item.keys() & {"content", "tool_calls"}:
        messages.append({"role": role, "content": json.dumps(item, ensure_ascii=False)})
    else:
        messages.extend(_from_blocks({"role": role, **item}, note))


_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


# ------------------------------------------------------------------------------------------------ Anthropic blocks


def _from_blocks(message: dict[str, Any], note: Note) -> list[dict[str, Any]]:
    """A message whose content may be blocks; results become messages of their own, before the user's words."""
    blocks = message.get("content")
    if not isinstance(blocks, list) or not any(_is_block(block) for block in blocks):
        return [message]
    rest: list[Json] = []
    thoughts: list[str] = []
    calls: list[dict[str, Json]] = []
    answers: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in ("tool_use", "server_tool_use"):
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind in ("tool_result", "web_search_tool_result", "web_fetch_tool_result"):
            answers.append(_block_answer(block, note))
        elif kind in ("thinking", "reasoning"):
            thoughts.append(str(block.get("thinking") or block.get("reasoning") or block.get("text") or ""))
        elif kind == "redacted_thinking":
            note("a thought is encrypted and was left out")
        else:
            rest.append(block)
    flat = {key: value for key, value in message.items() if key != "content"} | {"content": rest}
    if calls:
        flat["tool_calls"] = [*(message.get("tool_calls") or ()), *calls]
    if any(thoughts):
        flat["reasoning_content"] = "\n".join(thought for thought in thoughts if thought)
    if message.get("role") == "assistant":
        return [flat, *answers]  # tools of the provider answer within the same message
    return [*answers, flat] if rest or not answers else answers


def _is_block(block: Json) -> bool:
    kinds = ("tool_use", "tool_result", "thinking", "redacted_thinking", "reasoning", "server_tool_use")
    return isinstance(block, dict) and block.get("type") in kinds


def _block_answer(block: dict[str, Any], note: Note) -> dict[str, Any]:
    text, skipped = content_text(block.get("content"))
    for kind in skipped:
        note(f"a part of type {kind} was left out")
    if text is None:
        text = json.dumps(block.get("content"), ensure_ascii=False)
    answer: dict[str, Any] = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
    if isinstance(block.get("is_error"), bool):
        answer["is_error"] = block["is_error"]
    return answer


def _call(call_id: Json, name: Json, arguments: Json) -> dict[str, Json]:
    return {"id": call_id or None, "type": "function", "function": {"name": name, "arguments": arguments}}


# ------------------------------------------------------------------------------------------------ Responses items


def _from_item(messages: list[dict[str, Any]], item: dict[str, Any], note: Note) -> None:
    """One item. Items of one model response (thought, words, calls) make one assistant message."""
    kind = item["type"]
    kept = {key: item[key] for key in _KEPT if key in item}
    if kind in _OUTPUT_ITEMS:
        messages.append(_item_answer(item, note) | kept)
        return
    if kind == "message" and item.get("role") != "assistant":
        messages.append({"role": item.get("role"), "content": item.get("content")} | kept)
        return
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or not last.get("open"):
        last = {"role": "assistant", "content": [], "tool_calls": [], "open": True}
        messages.append(last)
    last.update(kept)
    if kind == "message":
        content = item.get("content")
        last["content"] = [*last["content"], *(content if isinstance(content, list) else [str(content or "")])]
    elif kind == "reasoning":
        text = _reasoning(item)
        if not text and item.get("encrypted_content"):
            note("a thought is encrypted and was left out")
        last["reasoning_content"] = "\n".join(part for part in (last.get("reasoning_content"), text) if part)
    elif kind == "function_call":
        last["tool_calls"].append(_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments")))
    elif kind == "custom_tool_call":
        last["tool_calls"].append(_call(item.get("call_id"), item.get("name"), {"input": item.get("input")}))
    else:
        last["tool_calls"].append(_call(item.get("call_id") or item.get("id"), "local_shell", item.get("action")))


def _reasoning(item: dict[str, Any]) -> str:
    parts: Sequence[Json] = [*(item.get("summary") or ()), *(item.get("content") or ())]
    texts = (part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict))
    return "\n".join(str(text) for text in texts if text)


def _item_answer(item: dict[str, Any], note: Note) -> dict[str, Any]:
    output = item.get("output")
    text, skipped = content_text(output)
    for kind in skipped:
        note(f"a part of type {kind} was left out")
    answer: dict[str, Any] = {
        "role": "tool",
        "tool_call_id": item.get("call_id") or item.get("id"),
        "content": json.dumps(output, ensure_ascii=False) if text is None else text,
    }
    inner = result_value(output) if isinstance(output, str) and output.startswith("{") else output
    told = inner.get("metadata") if isinstance(inner, dict) else None
    code = told.get("exit_code") if isinstance(told, dict) else None
    if isinstance(code, int):
        answer["is_error"] = code != 0
    elif item.get("status") == "failed" or (isinstance(inner, dict) and inner.get("success") is False):
        answer["is_error"] = True
    return answer


# ------------------------------------------------------------------------------------------------ GenAI parts


def _from_parts(message: dict[str, Any], note: Note, role: str) -> list[dict[str, Any]]:
    """One message with parts as one or more chat messages (each tool response is a message of its own)."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Json]] = []
    answers: list[dict[str, Any]] = []
    for part in message["parts"]:
        kind = part.get("type") if isinstance(part, dict) else "text" if isinstance(part, str) else None
        if kind == "text":
            texts.append(part if isinstance(part, str) else str(part.get("content", part.get("text", ""))))
        elif kind == "tool_call":
            calls.append(_call(part.get("id"), part.get("name"), part.get("arguments")))
        elif kind == "tool_call_response":
            answers.append(_part_answer(part))
        elif kind == "reasoning":
            thoughts.append(str(part.get("content", part.get("text", ""))))
        else:
            note(f"a part of type {kind} was left out")
    if answers:
        return answers
    if any(looks_truncated(piece) for piece in texts):
        note("a message is truncated")
    flat: dict[str, Any] = {"role": message.get("role") or role, "content": "".join(texts)}
    if calls:
        flat["tool_calls"] = calls
    if any(thoughts):
        flat["reasoning_content"] = "\n".join(thoughts)
    return [flat]


def _part_answer(part: dict[str, Any]) -> dict[str, Any]:
    response = next((part[key] for key in ("response", "result", "content") if part.get(key) is not None), None)
    content = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": part.get("id"), "content": content}


# ------------------------------------------------------------------------------------------------ LangChain


def _from_langchain(item: dict[str, Any], note: Note, role: str) -> list[dict[str, Any]]:
    """``{lc, id: [..., "AIMessage"], kwargs}``, ``{type: "ai", data: {…}}`` or ``{type: "ai", content, …}``."""
    named = item.get("type")
    if isinstance(item.get("id"), list) and item["id"]:
        named = str(item["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
    body = next((item[key] for key in ("kwargs", "data") if isinstance(item.get(key), dict)), item)
    named = body.get("type") if named not in _LANGCHAIN and named != "chat" else named
    message: dict[str, Any] = {
        "role": _LANGCHAIN.get(str(named)) or body.get("role") or role,
        "content": body.get("content"),
    }
    extra = table_at(body, "additional_kwargs")
    calls = body.get("tool_calls") or extra.get("tool_calls")
    if calls and isinstance(calls, list):
        message["tool_calls"] = [
            _call(call.get("id"), call.get("name"), call["args"]) if isinstance(call, dict) and "args" in call else call
            for call in calls
        ]
        content = body.get("content")
        if isinstance(content, list):  # the same calls a second time, as blocks of the provider
            message["content"] = [b for b in content if not (isinstance(b, dict) and b.get("type") == "tool_use")]
    if extra.get("reasoning_content"):
        message["reasoning_content"] = extra["reasoning_content"]
    if message["role"] == "tool":
        message["tool_call_id"] = body.get("tool_call_id")
        if body.get("status") in ("error", "success"):
            message["is_error"] = body["status"] == "error"
    usage = body.get("usage_metadata")
    if isinstance(usage, dict):
        message["usage"] = usage
    return _from_blocks(message, note)
