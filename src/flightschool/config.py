"""Loading of user configuration: TOML into pydantic models, unknown keys refused, errors with the mend.

Components keep their own settings beside their code; this module only loads. Reproducibility wants the resolved
configuration, so ``resolved_toml`` style dumps are the business of whoever starts a run.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from flightschool.errors import ConfigError

__all__ = ["Settings", "load_settings", "load_toml", "parse_settings"]

S = TypeVar("S", bound="Settings")
_TOLD = {bool: "true or false", int: "a whole number", float: "a number"}
"""Types that are not converted to one another, in words."""


class Settings(BaseModel):
    """Base of all user settings: frozen, unknown keys fail, numbers and switches are of their own type.

    Strict mode of pydantic would also refuse a list for a tuple and a text for a path, which TOML writes no other way;
    so only those types are strict that TOML has.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_own_type(cls, value: Any, info: ValidationInfo) -> Any:  # Any: not yet validated
        kind = _scalar(cls.model_fields[info.field_name or ""].annotation)
        if kind is None or value is None:
            return value
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (isinstance(value, bool) and kind is not bool):  # to Python, true is a whole number
            raise PydanticCustomError("own_type", "Input should be {told}", {"told": _TOLD[kind]})
        return value


def load_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file.

    Raises:
        ConfigError: the file is missing, unreadable or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            "configuration file not found", where=str(path), expected="a TOML file", mend="check the path"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            "a folder, not a file", where=str(path), expected="a TOML file", mend="name the file in it"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"configuration file is no text: byte {error.start} is not UTF-8",
            where=str(path),
            expected="a TOML file in UTF-8",
            mend="save it as UTF-8, or check the path",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"configuration file cannot be read: {error.strerror}",
            where=str(path),
            expected="a TOML file that you may read",
            mend="check the path and the permissions",
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"not valid TOML: {error}", where=str(path), expected="TOML 1.0", mend="mend the line named above"
        ) from error


def load_settings(path: Path, kind: type[S]) -> S:
    """Settings of ``kind`` from a TOML file (see ``parse_settings``)."""
    return parse_settings(load_toml(path), kind, where=str(path))


def parse_settings(table: dict[str, Any], kind: type[S], where: str) -> S:
    """Validate a table.

    Raises:
        ConfigError: the first wrong key, with its place, what was expected and the nearest known key.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(first["loc"][-1]), _known_keys(kind), n=1)
            mend = f"did you mean {near[0]!r}?" if near else "remove it"
            raise ConfigError(f"unknown key {key!r}", where=where, expected="a known key", mend=mend) from None
        together = isinstance(first["input"], dict) and first["type"] == "value_error"  # a rule over several keys
        shown = "keys that do not go together" if together else repr(first["input"])
        raise ConfigError(
            f"wrong value of {key!r}: {shown}" if key else f"wrong value: {shown}",
            where=where,
            expected=first["msg"].removeprefix("Value error, "),
            mend=f"correct {repr(key) if key else 'them'}; {_counted(error.error_count())}",
        ) from None


def _counted(num_problems: int) -> str:
    return "1 problem in all" if num_problems == 1 else f"{num_problems} problems in all"


def _scalar(annotation: Any) -> type | None:
    """The number or switch that a field is, perhaps beside None; None for fields of other kinds."""
    union = get_origin(annotation) in (Union, UnionType)
    kinds = [kind for kind in (get_args(annotation) if union else (annotation,)) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 and kinds[0] in (bool, int, float) else None


def _known_keys(kind: type[BaseModel]) -> list[str]:
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        keys.append(name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _known_keys(inner)
    return keys
