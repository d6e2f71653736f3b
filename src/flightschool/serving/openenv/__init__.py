"""OpenEnv 0.10: any environment of ours behind its protocol, in one process or many, or as an ASGI application."""

from flightschool.serving.openenv.asgi import AsgiApp
from flightschool.serving.openenv.folder import write_folder
from flightschool.serving.openenv.server import OpenEnvServer, ServerSettings
from flightschool.serving.openenv.session import SessionLimits
from flightschool.serving.openenv.workers import listen, serve_forever

__all__ = [
    "AsgiApp",
    "OpenEnvServer",
    "ServerSettings",
    "SessionLimits",
    "listen",
    "serve_forever",
    "write_folder",
]
