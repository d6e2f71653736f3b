"""The store: a workspace's memory, and the folder it lives in.

``SqlStore`` keeps records by kind and key and content-addressed blobs in SQLite (or PostgreSQL); ``Workspace`` is
the folder with ``flightschool.toml``. SQLAlchemy is imported when the first store opens, not with this package.
"""

from flightschool.store.erasing import erase, everything
from flightschool.store.sql import SCHEMA_VERSION, SqlStore
from flightschool.store.workspace import CONFIG_NAME, DATA_NAME, DEFAULT_CONFIG, Workspace, WorkspaceSettings

__all__ = [
    "CONFIG_NAME",
    "DATA_NAME",
    "DEFAULT_CONFIG",
    "SCHEMA_VERSION",
    "SqlStore",
    "Workspace",
    "WorkspaceSettings",
    "erase",
    "everything",
]
