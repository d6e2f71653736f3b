"""The grader process: ``python -m flightschool.verification.worker``, frames in on standard input, verdicts out.

Its standard output is kept for verdicts alone: file descriptor 1 is pointed at standard error before anything else
runs, so that nothing printed by accident can be read as a verdict.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from flightschool.errors import FlightschoolError
from flightschool.verification.frames import GradeItem, GradeReply, read_frame, write_frame
from flightschool.verification.verifier import CheckVerifier

__all__ = ["main", "serve"]


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Judge until the requests end."""
    while (item := read_frame(requests, GradeItem)) is not None:
        write_frame(replies, grade(item))


def grade(item: GradeItem) -> GradeReply:
    """Judge one item; an error becomes a reply that carries it."""
    try:
        return GradeReply(verdict=CheckVerifier(item.checks).verify(item.evidence))
    except FlightschoolError as error:
        return GradeReply(error=error.as_dict())


def main() -> int:
    """Serve standard input and output of this process."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, replies)
    except (EOFError, ValueError, BrokenPipeError) as error:
        sys.stderr.write(f"grader: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
