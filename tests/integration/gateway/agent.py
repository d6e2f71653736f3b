"""A plain tool-calling script as anyone would write it: the official client where it is installed, else urllib.

It knows nothing of what trains it: a base URL, a key and a task in its environment, and tools behind one more route.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import urllib.request
from typing import Any

MOST_TURNS = 6


def fetch(path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["FLIGHTSCHOOL_URL"] + path, data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return json.load(response)


def sdk_client() -> Any:
    return importlib.import_module("openai").OpenAI()  # as ``from openai import OpenAI``, where it may be missing


def ask_by_sdk(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    reply = sdk_client().chat.completions.create(
        model="gpt-4o", messages=messages, tools=tools, temperature=0.2, extra_body={"return_token_ids": True}
    )
    log(reply.model_dump())
    message: dict[str, Any] = reply.choices[0].message.model_dump(exclude_none=True)
    return message


def ask_by_sdk_streaming(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    with sdk_client().chat.completions.stream(
        model="gpt-4o", messages=messages, tools=tools, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        message: dict[str, Any] = stream.get_final_completion().choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", []):
        call["function"].pop("parsed_arguments", None)
    message.pop("parsed", None)
    return message


def ask_by_urllib(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    body = {"model": "gpt-4o", "messages": messages, "tools": tools, "return_token_ids": True}
    reply = fetch("/v1/chat/completions", body)
    log(reply)
    message: dict[str, Any] = reply["choices"][0]["message"]
    return message


def log(reply: dict[str, Any]) -> None:
    if path := os.environ.get("AGENT_LOG"):
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123  a script of anyone's
            file.write(json.dumps({"key": os.environ["OPENAI_API_KEY"], **reply}) + "\n")


def main() -> None:
    way = sys.argv[1] if len(sys.argv) > 1 else "auto"
    if way == "auto":
        way = "sdk" if importlib.util.find_spec("openai") else "urllib"
    ask = {"sdk": ask_by_sdk, "stream": ask_by_sdk_streaming, "urllib": ask_by_urllib}[way]
    messages = fetch("/task")["messages"]
    tools = fetch("/tools")["tools"]
    for _ in range(MOST_TURNS):
        message = ask(messages, tools)
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            break
        for call in calls:
            function = call["function"]
            arguments = json.loads(function["arguments"])
            result = fetch("/tools/call", {"id": call["id"], "name": function["name"], "arguments": arguments})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result["content"]})
    print(messages[-1].get("content"))  # noqa: T201


if __name__ == "__main__":
    main()
