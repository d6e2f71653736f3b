"""The counting process (``python -m flightschool.evaluation.counting``): a question on stdin, counts on stdout."""

from __future__ import annotations

import sys

from flightschool.errors import FlightschoolError
from flightschool.evaluation.kinship import answer

__all__ = ["main"]


def main() -> int:
    """Answer one question."""
    try:
        counts = answer(sys.stdin.buffer.read())
    except FlightschoolError as error:
        sys.stderr.write(f"{error.what}\n")
        return 2
    sys.stdout.buffer.write(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
