"""What Anthropic's own Python client sends, recorded: ``PYTHON record_anthropic.py`` prints one JSON object.

Run by a Python that has ``anthropic``; imports nothing of this package. It talks to a server on the loopback that
answers as ours does, so nothing leaves the machine. ``… record_anthropic.py --write`` keeps the request.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import typing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ANSWER = {
    "id": "msg_loopback",
    "type": "message",
    "role": "assistant",
    "model": "loopback",
    "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_9", "name": "get_weather", "input": {"place": "Rome"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 0, "output_tokens": 3},
}


def main() -> dict[str, Any]:
    """One conversation with the vendor's client."""
    anthropic: Any = importlib.import_module("anthropic")
    types: Any = importlib.import_module("anthropic.types")
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    client = anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_address[1]}")
    answer = client.messages.create(
        model="model-7",
        max_tokens=99,
        system="Be brief.",
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Warmer in Oslo or in Rome?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"place": "Oslo"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"place": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "14"},
                ],
            },
        ],
        tools=[
            {
                "name": "get_weather",
                "description": "Weather of a place.",
                "input_schema": {
                    "type": "object",
                    "properties": {"place": {"type": "string"}},
                    "required": ["place"],
                },
            }
        ],
    )
    server.shutdown()
    server.server_close()
    text, call = answer.content
    return {
        "version": anthropic.__version__,
        "request": seen[0],
        "read": {"text": text.text, "tool": call.name, "input": call.input, "stop": answer.stop_reason},
        "usage_fields": sorted(types.Usage.model_fields),
        "stop_reasons": sorted(typing.get_args(types.StopReason)),
    }


if __name__ == "__main__":
    found = main()
    if "--write" in sys.argv:
        path = Path(__file__).parent / "data" / "anthropic_request.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found["request"], indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(found) + "\n")
