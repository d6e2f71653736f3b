"""Intervals and tests that several rooms need. Pure functions; numpy is imported when one first computes."""

from flightschool.statistics.bootstrap import NUM_RESAMPLES, cluster_bootstrap_mean, paired_bootstrap, stratified_mean
from flightschool.statistics.interval import Interval
from flightschool.statistics.proportions import McNemar, mcnemar_exact, wilson
from flightschool.statistics.samples import (
    design_effect,
    effective_sample_size,
    length_bias,
    minimal_detectable_effect,
)
from flightschool.statistics.signal import (
    BINARY_PRIOR,
    PARTIAL_PRIOR,
    SignalPrior,
    family_prior,
    signal_posterior,
)

__all__ = [
    "BINARY_PRIOR",
    "NUM_RESAMPLES",
    "PARTIAL_PRIOR",
    "Interval",
    "McNemar",
    "SignalPrior",
    "cluster_bootstrap_mean",
    "design_effect",
    "effective_sample_size",
    "family_prior",
    "length_bias",
    "mcnemar_exact",
    "minimal_detectable_effect",
    "paired_bootstrap",
    "signal_posterior",
    "stratified_mean",
    "wilson",
]
