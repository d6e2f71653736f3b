"""Values of a ``config.json``, read by type: what is of another type is said by name, before anything is loaded.

Files of this kind are written by many tools and edited by hand, and Python would take "8", 8.0 or true for a size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flightschool.errors import ModelFolderError

__all__ = ["ConfigTable", "ConfigValueError"]

_MOST_SHOWN = 60
_MEND = "copy the model's own config.json into the folder, or save the model again with save_pretrained"


class ConfigValueError(ModelFolderError):
    """A value that no reader of the file could use, as against one that this engine does not support."""


class ConfigTable:
    """An object of a configuration. A key that is null counts as absent.

    Args:
        table: as decoded from JSON.
        where: the file.
        prefix: of the keys of a nested object, for errors.
    """

    def __init__(self, table: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self._table, self.where, self._prefix = table, where, prefix

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least ``least``.

        Raises:
            ConfigValueError: it is missing without a default, no whole number, or below.
        """
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"a whole number of {least} or more")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0. Raises ``ConfigValueError``."""
        value = self._value(name, default)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
        if not fits:
            raise self.wrong(name, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false. Raises ``ConfigValueError``."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str) -> str:
        """A text. Raises ``ConfigValueError``."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def token_ids(self, name: str) -> tuple[int, ...]:
        """No, one or several token ids. Raises ``ConfigValueError``."""
        value = self._value(name, [])
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
            raise self.wrong(name, "a token id, or a list of them")
        return tuple(ids)

    def inner(self, name: str) -> dict[str, Any]:
        """A nested object; empty if it is not there. Raises ``ConfigValueError``."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return value

    def wrong(self, name: str, expected: str) -> ConfigValueError:
        """The error for a value that is not what was expected."""
        shown = repr(self._table.get(name))
        shown = shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + "…"
        return ConfigValueError(
            f"{self._prefix}{name} = {shown} cannot be used", where=self.where, expected=expected, mend=_MEND
        )

    def _value(self, name: str, default: Any) -> Any:  # Any: what stands in the file, not yet looked at
        value = self._table.get(name)
        if value is not None:
            return value
        if default is None:
            if name in self._table:
                raise self.wrong(name, "a value")
            raise ConfigValueError(
                f"{self._prefix + name!r} is missing", where=self.where, expected="a complete configuration", mend=_MEND
            )
        return default
