"""Lineage: whether two sets of tasks are kin, so that nothing is measured that was trained."""

from flightschool.lineage.overlap import Overlap, OverlapKind, overlap

__all__ = ["Overlap", "OverlapKind", "overlap"]
