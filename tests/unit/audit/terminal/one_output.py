"""A file of a solution's work, as rules of forms see it."""

from __future__ import annotations

from flightschool.audit.terminal.outputs import Output

__all__ = ["one_output"]


def one_output(data: str, kind: str = "text", path: str = "/app/out", *, before: bytes | None = None) -> Output:
    """A graded text file that the instruction names; ``before`` is what it held, None where it was not there."""
    return Output(
        path=path,
        stage="",
        data=data.encode(),
        mode=0o644,
        kind=kind,
        language="",
        before=before,
        named=True,
        graded=True,
    )
