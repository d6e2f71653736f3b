"""MCP servers as environments: their tools, one's own tasks."""

from flightschool.environments.mcp.importing import (
    McpSession,
    McpSettings,
    connect_mcp,
    effect_of,
    import_mcp,
    read_tasks,
)
from flightschool.environments.mcp.transport import HttpTransport, McpClient, McpRefusedError, StdioTransport

__all__ = [
    "HttpTransport",
    "McpClient",
    "McpRefusedError",
    "McpSession",
    "McpSettings",
    "StdioTransport",
    "connect_mcp",
    "effect_of",
    "import_mcp",
    "read_tasks",
]
