"""The workspace: the folder with ``flightschool.toml``; its data lie in ``.flightschool/`` beside it."""

from __future__ import annotations

import tomllib
from functools import cached_property
from pathlib import Path

from pydantic import Field

from flightschool.config import Settings, load_toml, parse_settings
from flightschool.errors import ConfigError, InputError, StoreError
from flightschool.store.files import write_whole
from flightschool.store.sql import SCHEMA_VERSION, SqlStore

__all__ = ["CONFIG_NAME", "DATA_NAME", "DEFAULT_CONFIG", "Workspace", "WorkspaceSettings"]

CONFIG_NAME = "flightschool.toml"
DATA_NAME = ".flightschool"

DEFAULT_CONFIG = f"""\
# A flightschool workspace. Data lie in {DATA_NAME}/ beside this file; delete both to be rid of everything.

# Version of the workspace's layout. Written by flightschool; leave it as it is.
schema_version = {SCHEMA_VERSION}

# A name for people; shown on reports.
name = ""

# Where records are kept. Without this line: a SQLite file in {DATA_NAME}/. A team shares a PostgreSQL database;
# leave the password out of this file (the driver reads PGPASSWORD or ~/.pgpass).
# database = "postgresql+psycopg://user@host/flightschool"
"""


class WorkspaceSettings(Settings):
    """The keys of ``flightschool.toml``."""

    schema_version: int = Field(ge=1)
    """Version of the workspace's layout."""
    name: str = ""
    """A name for people."""
    database: str | None = None
    """Database URL; none means SQLite in the data folder. Relative SQLite paths start at the workspace."""


class Workspace:
    """An opened workspace. Its store connects at first use.

    Args:
        root: the folder that holds ``flightschool.toml``.

    Raises:
        StoreError: no workspace is there, or one of another version.
        ConfigError: the configuration is broken.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.data = self.root / DATA_NAME
        config = self.root / CONFIG_NAME
        if not config.is_file():
            raise _no_workspace(self.root)
        self.settings = _parse(load_toml(config), str(config))
        _make_folder(self.data)

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """The workspace that ``start`` (by default the current folder) lies in: the nearest one upwards.

        Raises:
            StoreError: there is none.
        """
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / CONFIG_NAME).is_file():
                return cls(folder)
        raise _no_workspace(here)

    @classmethod
    def create(cls, directory: Path, *, config_text: str = DEFAULT_CONFIG) -> Workspace:
        """Make a workspace in ``directory`` (made if missing).

        The configuration is written last and at once: killed half-way, the folder is no workspace yet and
        creating it again works.

        Raises:
            ConfigError: ``directory`` is a workspace already or no folder, or ``config_text`` is wrong.
        """
        config = directory / CONFIG_NAME
        if config.exists():
            raise ConfigError(
                "there is a workspace already",
                where=str(directory),
                expected="a folder without flightschool.toml",
                mend="choose another folder, or use the workspace that is there",
            )
        try:
            table = tomllib.loads(config_text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"not valid TOML: {error}", where=CONFIG_NAME, expected="TOML 1.0") from error
        _parse(table, CONFIG_NAME)
        _make_folder(directory / DATA_NAME)
        write_whole(directory / DATA_NAME / ".gitignore", b"*\n")
        write_whole(config, config_text.encode())
        return cls(directory)

    @property
    def database_url(self) -> str:
        """URL of the store."""
        url = self.settings.database
        if url is None:
            return f"sqlite:///{self.data / 'store.sqlite'}"
        scheme, separator, path = url.partition(":///")
        if separator and scheme.startswith("sqlite") and path not in {"", ":memory:"}:
            return f"{scheme}:///{self.root / path}"
        return url

    @cached_property
    def store(self) -> SqlStore:
        """The store, opened at first use. Raises ``StoreError`` as ``SqlStore`` does."""
        return SqlStore(self.database_url)

    def run_dir(self, run: str) -> Path:
        """The folder of a run, for checkpoints and logs; whoever starts the run makes it.

        Raises:
            InputError: ``run`` cannot name a folder.
        """
        if not run or run in {".", ".."} or run != Path(run).name or "\0" in run:
            raise InputError(
                f"{run!r} cannot name a run", expected="a plain name without slashes", mend="choose another name"
            )
        return self.data / "runs" / run

    def close(self) -> None:
        """Let the store's connections go."""
        if "store" in self.__dict__:
            self.store.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse(table: dict[str, object], where: str) -> WorkspaceSettings:
    # The version first: a file of a later version may hold keys that only that version knows.
    version = table.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION:
        raise StoreError(
            f"the workspace is of another version (schema_version {version})",
            where=where,
            expected=f"schema_version {SCHEMA_VERSION}",
            mend="use the flightschool version that made it, or start afresh with: flightschool init DIR",
        )
    return parse_settings(table, WorkspaceSettings, where)


def _no_workspace(folder: Path) -> StoreError:
    return StoreError(
        "not in a workspace",
        where=str(folder),
        expected=f"{CONFIG_NAME} in this folder or above it",
        mend="make one with: flightschool init DIR",
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder cannot be made: {error.strerror}",
            where=str(folder),
            expected="a folder that can be written",
            mend="choose another folder or mend its rights",
        ) from error
