"""Help shown letter by letter: typer hands it to rich, which reads ``[[check]]`` as markup and ``:a:`` as an emoji."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["literal", "make_literal"]

_TAG = re.compile(r"\[(?=[a-z#/@])")
_EMOJI = re.compile(r":(?=\S+?:)")


def literal(text: str) -> str:
    """``text`` as markup that rich renders as ``text``."""
    return _EMOJI.sub(":[none][/]", _TAG.sub(r"\\[", text))  # no emoji is looked for across a tag


def make_literal(command: Any) -> None:
    """Make the help of a parsed command, its options and all commands below it literal."""
    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            text = getattr(part, name, None)
            if text:
                setattr(part, name, literal(text))
    for below in getattr(command, "commands", {}).values():
        make_literal(below)
