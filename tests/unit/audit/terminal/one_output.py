"""A file of a solution's work, as rules of forms see it."""

from __future__ import annotations

from flightschool.audit.terminal.outputs import Output

__all__ = ["one_output"]


def one_output(data: str, kind: str, path: str = "/app/out") -> Output:
    """A graded text file that the instruction names and that was not there before."""
    return Output(
        path=path,
        stage="",
        data=data.encode(),
        mode=0o644,
        kind=kind,
        language="",
        before=None,
        named=True,
        graded=True,
    )
