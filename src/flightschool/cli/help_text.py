"""Help shown letter by letter and wrapped by the terminal alone.

Typer hands help to rich, which reads ``[[check]]`` as markup and ``:a:`` as an emoji. It keeps the line ends of every
paragraph but the first, so that source lines longer than the terminal would break twice.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["flowing", "literal", "make_literal"]

_TAG = re.compile(r"\[(?=[a-z#/@])")
_EMOJI = re.compile(r":(?=\S+?:)")
_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")


def flowing(text: str) -> str:
    """``text`` with one line a paragraph; an empty line still parts two of them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in _PARAGRAPHS.split(text.strip()))


def literal(text: str) -> str:
    """``text`` as markup that rich renders as ``text``."""
    return _EMOJI.sub(":[none][/]", _TAG.sub(r"\\[", text))  # no emoji is looked for across a tag


def make_literal(command: Any) -> None:
    """Make the help of a parsed command, its options and all commands below it literal and flowing."""
    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            text = getattr(part, name, None)
            if text:
                setattr(part, name, literal(flowing(text)))
    for below in getattr(command, "commands", {}).values():
        make_literal(below)
