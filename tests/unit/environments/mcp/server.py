"""A small MCP server over standard input and output, written against the standard, with defects on demand.

``python server.py [DEFECT]``: a note book with three tools. DEFECT: ``slow``, ``wrong-id``, ``chatty``, ``dies``,
``garbage``.
"""

from __future__ import annotations

import json
import sys
import time

DEFECT = sys.argv[1] if len(sys.argv) > 1 else ""
NOTES: dict[str, str] = {}
TEXT = {"type": "string"}


def schema(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": list(names)}


TOOLS = [
    {"name": "read_note", "description": "r", "inputSchema": schema("key"), "annotations": {"readOnlyHint": True}},
    {
        "name": "write_note",
        "description": "w",
        "inputSchema": schema("key", "text"),
        "annotations": {"destructiveHint": False, "openWorldHint": False, "idempotentHint": True},
    },
    {"name": "wipe", "description": "x", "inputSchema": schema()},
]


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def call(name: str, arguments: dict[str, str]) -> dict[str, object]:
    if name == "read_note":
        if arguments["key"] not in NOTES:
            return {"content": [{"type": "text", "text": "no such note"}], "isError": True}
        return {"content": [{"type": "text", "text": json.dumps({"text": NOTES[arguments["key"]]})}]}
    if name == "write_note":
        NOTES[arguments["key"]] = arguments["text"]
        return {"content": [], "structuredContent": {"written": True}}
    NOTES.clear()
    return {"content": [{"type": "text", "text": "gone"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        continue  # an answer to what this server asked
    method, number = message["method"], message.get("id")
    if method == "initialize":
        result: dict[str, object] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
            "instructions": "Keep notes.",
        }
    elif method == "tools/list":
        second = message["params"].get("cursor") == "2"
        result = {"tools": TOOLS[2:]} if second else {"tools": TOOLS[:2], "nextCursor": "2"}
    elif method == "tools/call":
        if DEFECT == "slow":
            time.sleep(60)
        if DEFECT == "dies":
            sys.exit(3)
        if DEFECT == "garbage":
            sys.stdout.write("Starting up!\n")
        if DEFECT == "wrong-id":
            number += 1
        if DEFECT == "chatty":
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "working"}})
            say({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {}})
        if message["params"]["name"] == "refused":
            say({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "no such tool"}})
            continue
        result = call(message["params"]["name"], message["params"]["arguments"])
    elif number is None:
        continue
    else:
        say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "what?"}})
        continue
    say({"jsonrpc": "2.0", "id": number, "result": result})
