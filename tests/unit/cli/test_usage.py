"""Errors of the machine, told as such whatever library met them: no defect to report, and how to mend them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flightschool.cli.usage import as_flightschool_error
from flightschool.errors import InfrastructureError


def system_error(number: int, filename: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), filename)


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("the weights could not be written")
    outer.__cause__ = error
    return outer


FULL = "no space left on the disk"
QUOTA = "the disk quota is used up"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (system_error(errno.ENOSPC), FULL),
        (system_error(errno.ENOSPC, "/data/journal.bin"), FULL),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), FULL),
        (wrapped(system_error(errno.ENOSPC)), FULL),
        (system_error(errno.EDQUOT), QUOTA),
        (system_error(errno.EROFS, "/data/run.lock"), "read-only file system"),
    ],
)
def test_a_disk_that_takes_nothing_is_one_error_with_its_mend(error: Exception, what: str) -> None:
    told = as_flightschool_error(error)
    assert told is not None
    assert (told.what, told.exit_code) == (what, 2)
    assert told.where
    assert told.expected
    assert told.mend
    if isinstance(error, OSError) and error.filename:
        assert told.where == error.filename


def test_without_a_file_the_workspace_is_named(space: Path) -> None:
    told = as_flightschool_error(system_error(errno.ENOSPC))
    assert told is not None
    assert Path(told.where) == space / ".flightschool"


@pytest.mark.parametrize("error", [system_error(errno.EIO), RuntimeError("(os error 5)"), ValueError("os error 28")])
def test_other_errors_stay_defects(error: Exception) -> None:
    assert as_flightschool_error(error) is None


def test_an_error_of_ours_is_told_as_it_is() -> None:
    ours = InfrastructureError("the trainer raised", where="trainer.log", expected="none", mend="see there")
    ours.__cause__ = system_error(errno.ENOSPC)
    assert as_flightschool_error(ours) is ours
