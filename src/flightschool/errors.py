"""The error tree, and how an error is told.

Every error names four things: *what* went wrong, *where*, what was *expected*, and the *mend*::

    FlightschoolError
    ├── InputError            (ValueError)    a file, option or value given by the user is wrong        exit 2
    │   ├── ConfigError                       a configuration key or value
    │   ├── TraceError                        a trace file or line
    │   ├── ModelFolderError                  a model folder that cannot be used
    │   └── NotFoundError     (LookupError)   a name that does not exist
    ├── StoreError            (RuntimeError)  the workspace cannot be read or is of another version      exit 2
    ├── GateError             (RuntimeError)  an order of the house was broken: unaudited, unscreened,   exit 2
    │                                         unfrozen, overlapping
    ├── TokenContractError    (ValueError)    token ids, log-probabilities or versions are not exact
    └── InfrastructureError   (RuntimeError)  the world failed, not the policy: engine died, grader lost exit 1

A failed *episode* is not an exception: it is an ``Attempt`` with an outcome (see ``records``). Exceptions of
this module cross process borders, so each is picklable and carries only strings.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConfigError",
    "FlightschoolError",
    "GateError",
    "InfrastructureError",
    "InputError",
    "ModelFolderError",
    "NotFoundError",
    "StoreError",
    "TokenContractError",
    "TraceError",
]


class FlightschoolError(Exception):
    """Root of the tree.

    Args:
        what: what went wrong, in one clause.
        where: file, line, key, option or id.
        expected: what would have been right.
        mend: what the reader can do now.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", expected: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.mend = mend

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"at {self.where}")
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.mend:
            parts.append(f"mend: {self.mend}")
        return "; ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.expected, self.mend))

    def as_dict(self) -> dict[str, str]:
        """The object that ``--json`` prints under ``error``."""
        return {"what": self.what, "where": self.where, "expected": self.expected, "mend": self.mend}


def _rebuild(kind: type[FlightschoolError], what: str, where: str, expected: str, mend: str) -> FlightschoolError:
    return kind(what, where=where, expected=expected, mend=mend)


class InputError(FlightschoolError, ValueError):
    """Something the user gave is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration file, key or value is wrong."""


class TraceError(InputError):
    """A trace file, or one line of it, cannot be read."""


class ModelFolderError(InputError):
    """A model folder is missing something or is of a shape that no engine here runs."""


class NotFoundError(InputError, LookupError):
    """A name that the workspace does not know."""


class StoreError(FlightschoolError, RuntimeError):
    """The workspace cannot be opened, or was written by another version."""

    exit_code = 2


class GateError(FlightschoolError, RuntimeError):
    """An order of the house was broken: audit before training, screening before training, freeze before results."""

    exit_code = 2


class TokenContractError(FlightschoolError, ValueError):
    """Tokens, log-probabilities or versions are missing, NaN, of the wrong length, or filled in."""


class InfrastructureError(FlightschoolError, RuntimeError):
    """The world failed and the policy could not have caused it."""
