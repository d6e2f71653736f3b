"""The reference solution must succeed, otherwise the task punishes right work."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.probes.base import barring
from flightschool.errors import InfrastructureError
from flightschool.records import Finding

NAME = "oracle"


def probe(exam: Examination) -> Iterable[Finding]:
    """Play the oracle."""
    if not exam.reference.oracle:
        raise InfrastructureError(
            "the task has no oracle", expected="a reference solution", mend="add one; without it nothing is proven"
        )
    if not exam.oracle.success:
        yield barring(NAME, "the oracle falls short of its own checks", exam.oracle.shortfall, exam.oracle)
