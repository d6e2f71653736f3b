"""OpenEnv servers as environments of ours: the client's side of the protocol."""

from flightschool.environments.openenv.importing import Imported, ImportSettings, import_openenv
from flightschool.environments.openenv.link import Link
from flightschool.environments.openenv.session import Accounted, OpenEnvSession, connect_openenv

__all__ = [
    "Accounted",
    "ImportSettings",
    "Imported",
    "Link",
    "OpenEnvSession",
    "connect_openenv",
    "import_openenv",
]
