"""Run by a Python with NeMo Gym: its own resources servers, and its own agent, without its launcher.

``peer_nemo_gym.py resources NAME`` serves a resources server of the package and prints its port.
``peer_nemo_gym.py agent URL ROW TURNS`` lets ``simple_agent`` play a row at a resources server of ours; TURNS are the
outputs of a scripted model, one a request. Prints the verify response.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


def listener() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(64)  # whoever reads the port may knock at once
    return made


def client(places: dict[str, tuple[str, int]]) -> Any:
    """NeMo Gym's own client, told where each server is; the configuration comes as its launcher hands it to servers."""
    utils: Any = importlib.import_module("nemo_gym.server_utils")
    omega: Any = importlib.import_module("omegaconf").OmegaConf
    told = {
        name: {kind: {"one": {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}}}
        for name, (kind, port) in places.items()
    }
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(told)
    head = importlib.import_module("nemo_gym.config_types").BaseServerConfig(host="127.0.0.1", port=1)
    return utils.ServerClient(head_server_config=head, global_config_dict=omega.create(told))


def run(app: Any, sock: socket.socket) -> None:
    uvicorn: Any = importlib.import_module("uvicorn")
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[sock])


def resources(name: str) -> None:
    module: Any = importlib.import_module(f"resources_servers.{name}.app")
    base: Any = importlib.import_module("nemo_gym.base_resources_server").SimpleResourcesServer
    kinds: list[Any] = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__
    ]
    (kind,) = kinds
    sock = listener()
    port = sock.getsockname()[1]
    settings = {"host": "127.0.0.1", "port": port, "entrypoint": "app.py", "name": name, "domain": "agent"}
    server = kind(config=kind.model_fields["config"].annotation(**settings), server_client=client({}))
    print(port, flush=True)  # noqa: T201
    run(server.setup_webserver(), sock)


class Model(BaseHTTPRequestHandler):
    """A scripted model server: the next output for each request."""

    turns: ClassVar[list[list[dict[str, Any]]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = {
            "id": "resp",
            "object": "response",
            "created_at": 0,
            "model": "scripted",
            "output": self.turns.pop(0),
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
        }
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def agent(url: str, row: dict[str, Any], turns: list[list[dict[str, Any]]]) -> dict[str, Any]:
    Model.turns = turns
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    app: Any = importlib.import_module("responses_api_agents.simple_agent.app")
    sock = listener()
    port = sock.getsockname()[1]
    places = {
        "ours": ("resources_servers", int(url.rpartition(":")[2])),
        "model": ("responses_api_models", model.server_address[1]),
        "player": ("responses_api_agents", port),
    }
    config = app.SimpleAgentConfig(
        host="127.0.0.1",
        port=port,
        entrypoint="app.py",
        name="player",
        resources_server={"type": "resources_servers", "name": "ours"},
        model_server={"type": "responses_api_models", "name": "model"},
    )
    web = app.SimpleAgent(config=config, server_client=client(places)).setup_webserver()
    threading.Thread(target=run, args=(web, sock), daemon=True).start()
    body = json.dumps(row).encode()
    for _ in range(100):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/run", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                told: dict[str, Any] = json.loads(answer.read())
                return told
        except ConnectionError:
            time.sleep(0.1)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            time.sleep(0.1)
    raise TimeoutError("the agent did not start")


if __name__ == "__main__":
    if sys.argv[1] == "resources":
        resources(sys.argv[2])
    else:
        print(json.dumps(agent(sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))))  # noqa: T201
