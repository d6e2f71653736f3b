"""YAML by way of PyYAML, which is asked for only when a folder holds YAML (Terminal-Bench 1, compose files)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from flightschool.errors import InputError
from flightschool.records import Json

__all__ = ["load_yaml"]

MAX_NESTING = 64


def load_yaml(text: str, where: str) -> Json:
    """The value of one YAML document, plain data only.

    Raises:
        InputError: no YAML, an alias, or PyYAML is not installed.
    """
    try:
        yaml: Any = importlib.import_module("yaml")  # no stubs: a loader class and an error class are all that is used
    except ImportError:
        raise InputError(
            "reading YAML needs PyYAML", where=where, expected="the package PyYAML", mend="pip install pyyaml"
        ) from None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml, yaml.parse(text, Loader=loader), where)
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        first = " ".join(str(error).split())[:200]
        raise InputError(
            f"not valid YAML: {first}", where=where, expected="YAML", mend="mend the line named above"
        ) from None


def _check_events(yaml: Any, events: Iterable[Any], where: str) -> None:
    """Refuse what is cheap to write and dear to build: aliases of aliases, and nesting that overflows a C stack."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise InputError("an alias", where=where, expected="YAML without aliases", mend="write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            raise InputError("too deep", where=where, expected=f"at most {MAX_NESTING} levels", mend="flatten it")
