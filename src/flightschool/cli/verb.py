"""What every verb has in common: an example in its help and ``--json``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import typer

__all__ = ["group", "verb"]

F = TypeVar("F", bound=Callable[..., None])

_JSON = typer.Option(False, "--json", help="Print exactly one JSON object on stdout.")


def group(app: typer.Typer, name: str, help_text: str) -> typer.Typer:
    """A verb with verbs below it, such as ``traces``."""
    below = typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="rich")
    app.add_typer(below, name=name)
    return below


def verb(app: typer.Typer, name: str, *, example: str) -> Callable[[F], F]:
    """Register a function as a verb. Its docstring is the help; ``example`` stands below the options.

    The ``--json`` flag is read by ``main`` before parsing (it may stand anywhere); here it is declared, so that help
    and documentation show it.
    """

    def register(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, json: bool = False, **options: Any) -> None:
            del json
            function(*args, **options)

        signature = inspect.signature(function)
        flag = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=_JSON, annotation=bool)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), flag])  # type: ignore[attr-defined]
        run.__annotations__ = {**get_type_hints(function, include_extras=True), "json": bool}
        app.command(name, epilog=f"Example: {example}")(run)
        return function

    return register
