"""Names to redact, given by the user as a list: no model guesses who is a person."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from flightschool.errors import InputError

__all__ = ["name_key", "names_pattern", "read_names"]

_SEPARATORS = r"[\s_.\-+]{0,3}"
_BATCH = 2000
_SHORTEST = 2


def read_names(path: Path) -> tuple[str, ...]:
    """Names of a text file, one a line; empty lines and lines that begin with ``#`` are skipped.

    Raises:
        InputError: the file cannot be read, or a name is a single letter (it would be found everywhere).
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the list of names cannot be read", where=str(path), expected="a UTF-8 text file", mend=str(error)
        ) from error
    names = []
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name or name.startswith("#"):
            continue
        if len(re.sub(r"[\W_]", "", name)) < _SHORTEST:
            raise InputError(
                f"{name!r} is no name to look for",
                where=f"{path}:{number}",
                expected=f"at least {_SHORTEST} letters",
                mend="write the name in full, or remove the line",
            )
        names.append(name)
    return tuple(dict.fromkeys(names))


def names_pattern(names: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns that find the names, case-insensitive, words joined by blanks, ``_``, ``.``, ``-`` or nothing.

    A name counts where no letter stands before or after it: ``Mia Li`` is found in ``mia_li_3668``, not in "Mia Lima".
    """
    forms = sorted({unicodedata.normalize("NFC", name) for name in names}, key=lambda name: (-len(name), name))
    spelled = [_SEPARATORS.join(re.escape(word) for word in re.split(r"[\s_.\-]+", name) if word) for name in forms]
    return tuple(
        re.compile(rf"(?<![^\W\d_])(?:{'|'.join(spelled[start : start + _BATCH])})(?![^\W\d_])", re.IGNORECASE)
        for start in range(0, len(spelled), _BATCH)
    )


def name_key(found: str) -> str:
    """What two spellings of one name have in common."""
    return re.sub(r"[\s_.\-+]+", "", unicodedata.normalize("NFC", found)).casefold()
