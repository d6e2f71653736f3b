"""The peer's side of ``bench openenv``: an echo environment in OpenEnv's own classes, by the Python of its own venv.

``python openenv_reference.py PORT`` serves a tool ``echo_message`` as OpenEnv's echo environment does: an
``MCPEnvironment`` over FastMCP behind ``create_app``. Imports nothing of this package.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["main"]


def main(port: int) -> None:
    """Serve until ended."""
    fastmcp: Any = importlib.import_module("fastmcp")
    server: Any = importlib.import_module("openenv.core.env_server.http_server")
    environment: Any = importlib.import_module("openenv.core.env_server.mcp_environment")
    mcp_types: Any = importlib.import_module("openenv.core.env_server.mcp_types")
    types: Any = importlib.import_module("openenv.core.env_server.types")
    uvicorn: Any = importlib.import_module("uvicorn")

    class Echo(environment.MCPEnvironment):  # type: ignore[misc, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            tools = fastmcp.FastMCP("echo")

            @tools.tool  # type: ignore[untyped-decorator, unused-ignore]
            def echo_message(message: str) -> str:
                return message

            super().__init__(tools)
            self._state = types.State(episode_id="", step_count=0)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Any:
            del seed
            self._state = types.State(episode_id=episode_id or "episode", step_count=0)
            return types.Observation(done=False, reward=0.0, metadata={"status": "ready"})

        def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
            self._state.step_count += 1
            return super().step(action, timeout_s=timeout_s, **more)

        async def step_async(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
            self._state.step_count += 1
            return await super().step_async(action, timeout_s=timeout_s, **more)

        def _step_impl(self, action: Any, **_: Any) -> Any:
            raise ValueError(f"not an action of this environment: {action}")

        @property
        def state(self) -> Any:
            return self._state

    app = server.create_app(
        Echo, mcp_types.CallToolAction, mcp_types.CallToolObservation, env_name="echo", max_concurrent_envs=64
    )
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
