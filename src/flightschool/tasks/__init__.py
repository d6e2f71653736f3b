"""Tasks: their families and strata, and the split by family."""

from flightschool.tasks.split import families_of, split_by_family, strata_of

__all__ = ["families_of", "split_by_family", "strata_of"]
