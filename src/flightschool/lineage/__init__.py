"""Lineage: whether sets of tasks and texts are kin, so that nothing is measured that was trained."""

from flightschool.lineage.canaries import canaries_in, canary, suites_met
from flightschool.lineage.copies import CopyKind, NearCopy, near_copies
from flightschool.lineage.minhash import minhash, similarity
from flightschool.lineage.overlap import Overlap, OverlapKind, overlap
from flightschool.lineage.rules import ruled_apart
from flightschool.lineage.signatures import KinCounts, Signature, count_kin, sign
from flightschool.lineage.texts import Origin, Text, masked, normalised

__all__ = [
    "CopyKind",
    "KinCounts",
    "NearCopy",
    "Origin",
    "Overlap",
    "OverlapKind",
    "Signature",
    "Text",
    "canaries_in",
    "canary",
    "count_kin",
    "masked",
    "minhash",
    "near_copies",
    "normalised",
    "overlap",
    "ruled_apart",
    "sign",
    "similarity",
    "suites_met",
]
