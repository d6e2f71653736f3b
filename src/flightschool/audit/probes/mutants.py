"""Wrong variants of the oracle must fall short; a survivor shows a check that is too loose."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.probes.base import passes
from flightschool.digest import derive_random
from flightschool.errors import InfrastructureError
from flightschool.records import Finding

NAME = "mutants"
MOST_MUTANTS = 20


def probe(exam: Examination) -> Iterable[Finding]:
    """Play the mutants (a seeded sample of ``MOST_MUTANTS`` if there are more)."""
    if not exam.oracle.success:
        raise InfrastructureError("mutants of a broken oracle prove nothing", mend="mend the oracle first")
    if not exam.is_reproducible:
        raise InfrastructureError("equal calls end in unequal states: equivalence cannot be told", mend="see 'flake'")
    mutants = exam.mutants
    if len(mutants) > MOST_MUTANTS:
        mutants = tuple(derive_random(exam.seed, "mutants", exam.task.id).sample(mutants, MOST_MUTANTS))
    for mutant in mutants:
        play = exam.play_mutant(mutant)
        if exam.is_equivalent(play):
            exam.equivalent_mutants.append(mutant.name)
        elif play.success:
            yield from passes(NAME, f"a wrong variant of the oracle ({mutant.name})", play)
