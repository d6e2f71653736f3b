"""From any exception to the contract: what, where, expected, mend, and an exit code.

The command-line library's own exceptions are told apart by what they carry, not by class: it ships its parser under
different private names from version to version.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flightschool.errors import FlightschoolError, InputError, StoreError

__all__ = ["as_flightschool_error", "is_usage_error", "nearest", "unexpected"]

_FILE_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_FULL = {errno.ENOSPC: "no space left on the disk", errno.EDQUOT: "the disk quota is used up"}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How libraries written in Rust (safetensors, tokenizers) tell the number of an error of the system."""


def nearest(wrong: str, known: Iterable[str]) -> str:
    """``did you mean …?`` with the nearest known word, or the empty string."""
    found = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else ""


def is_usage_error(error: BaseException) -> bool:
    """Whether the command line itself was wrong."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def as_flightschool_error(error: BaseException) -> FlightschoolError | None:
    """The error to tell, or None when ``error`` is a defect of ours."""
    if isinstance(error, FlightschoolError):
        return error
    if is_usage_error(error):
        return _from_usage(error)
    if isinstance(error, _FILE_ERRORS) and error.filename:
        return InputError(
            (error.strerror or "file cannot be used").lower(),
            where=str(error.filename),
            expected="a file or folder that can be read or written here",
            mend="check the path and its permissions",
        )
    return _from_disk(error)


def _from_disk(error: BaseException) -> FlightschoolError | None:
    """A disk that is full or cannot be written, whatever library met it; None: neither."""
    for part in _causes(error):
        number = _system_number(part)
        place = str(getattr(part, "filename", None) or _data_folder() or Path.cwd())
        if number in _FULL:
            return StoreError(
                _FULL[number],
                where=place,
                expected="room for what the command writes there, or in its temporary folder",
                mend="free disk space and run the same command again; what was finished is kept",
            )
        if number == errno.EROFS:
            return InputError(
                "read-only file system",
                where=place,
                expected="a file or folder that can be written",
                mend="mount it writable, or work in another folder",
            )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first."""
    part: BaseException | None = error
    while part is not None:
        yield part
        part = part.__cause__


def _system_number(error: BaseException) -> int | None:
    """``errno`` of an error of the system, also where a library only tells it."""
    if isinstance(error, OSError):
        return error.errno
    told = _OS_ERROR.search(str(error))
    return int(told[1]) if told else None


def _from_usage(error: Any) -> InputError:
    context: Any = getattr(error, "ctx", None)
    verb = getattr(context, "command_path", "") or "flightschool"
    help_hint = f"see `{verb} --help`"
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        hint = nearest(str(option), _option_names(context))
        return InputError(f"unknown option {option!r}", where=verb, expected="a known option", mend=hint or help_hint)
    command: Any = getattr(context, "command", None)
    words = list(getattr(context, "_protected_args", None) or []) + list(getattr(context, "args", None) or [])
    if getattr(command, "commands", None) and "No such command" in str(getattr(error, "message", "")):
        wrong = _quoted(str(error.message)) or (words[0] if words else "")
        known = sorted(command.commands)
        return InputError(
            f"unknown verb {wrong!r}",
            where=verb,
            expected="one of " + ", ".join(known),
            mend=nearest(wrong, known) or help_hint,
        )
    if type(error).__name__ == "MissingParameter":
        name = _parameter_name(getattr(error, "param", None))
        return InputError(f"{name} is missing", where=verb, expected=f"a value for {name}", mend=help_hint)
    if type(error).__name__ == "NoArgsIsHelpError":
        verbs = ", ".join(sorted(getattr(command, "commands", {})))
        return InputError("no verb was given", where=verb, expected=f"one of {verbs}", mend=help_hint)
    parameter = getattr(error, "param", None)
    where = f"{verb} {_parameter_name(parameter)}" if parameter is not None else verb
    return InputError(
        str(getattr(error, "message", error)).strip().rstrip("."), where=where, expected="right usage", mend=help_hint
    )


def _quoted(message: str) -> str:
    parts = message.split("'")
    return parts[1] if len(parts) > 2 else ""


def _option_names(context: Any) -> list[str]:
    command = getattr(context, "command", None)
    return [name for parameter in getattr(command, "params", []) for name in parameter.opts if name.startswith("-")]


def _parameter_name(parameter: Any) -> str:
    if parameter is None:
        return "an argument"
    if getattr(parameter, "param_type_name", "") == "option":
        return str(max(parameter.opts, key=len))
    return str(getattr(parameter, "metavar", None) or parameter.name).upper()


def unexpected(error: BaseException) -> FlightschoolError:
    """A defect of ours: the traceback goes to a file, the user gets one line that names it."""
    name = f"flightschool-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    text = "".join(traceback.format_exception(error))
    for folder in (_data_folder(), Path(tempfile.gettempdir())):
        if folder is None:
            continue
        try:
            (folder / name).write_text(text, encoding="utf-8")
        except OSError:
            continue
        place = str(folder / name)
        break
    else:
        place = "no folder could be written"
    what = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    return FlightschoolError(
        what, where=place, expected="no defect here", mend="please report it with the file named above"
    )


def _data_folder() -> Path | None:
    """The data folder of the workspace around the working directory, found without opening it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "flightschool.toml").is_file():
            data = folder / ".flightschool"
            return data if data.is_dir() else None
    return None
