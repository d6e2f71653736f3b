"""Intervals and tests that several rooms need. Pure functions; numpy is imported when one first computes."""

from flightschool.statistics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from flightschool.statistics.association import (
    Calibration,
    calibration,
    disattenuated,
    kendall_tau,
    pearson,
    ranks,
    spearman,
    unrestricted,
)
from flightschool.statistics.bootstrap import NUM_RESAMPLES, cluster_bootstrap_mean, paired_bootstrap, stratified_mean
from flightschool.statistics.corrected_rate import corrected_difference, corrected_rate, reviewed_rate
from flightschool.statistics.exact import (
    FEW_FAILING_CLUSTERS,
    blaker,
    clopper_pearson,
    korn_graubard,
    num_failing_clusters,
)
from flightschool.statistics.finite import FinitePopulation
from flightschool.statistics.generalizability import (
    Design,
    VarianceComponents,
    cheapest_design,
    dependability,
    g_study,
    generalizability,
)
from flightschool.statistics.interval import Interval
from flightschool.statistics.multiplicity import RankStability, holm, rank_stability
from flightschool.statistics.process_bias import ProcessBias, process_bias
from flightschool.statistics.proportions import McNemar, mcnemar_exact, wilson
from flightschool.statistics.quantiles import quantile
from flightschool.statistics.reliability import (
    IntraclassCorrelation,
    cronbach_alpha,
    icc_oneway,
    repeats_for,
    sign_agreement,
    spearman_brown,
    standard_error_of_measurement,
)
from flightschool.statistics.repeats import pass_at_k, pass_hat_k
from flightschool.statistics.samples import (
    design_effect,
    effective_sample_size,
    length_bias,
    minimal_detectable_effect,
)
from flightschool.statistics.sequential import (
    SequentialPlan,
    e_value,
    plan_sequential,
    required_pairs,
    walk_boundary,
)
from flightschool.statistics.signal import (
    BINARY_PRIOR,
    PARTIAL_PRIOR,
    SignalPrior,
    family_prior,
    signal_posterior,
)
from flightschool.statistics.special import beta_cdf, beta_quantile, f_quantile, student_quantile
from flightschool.statistics.verifier_error import (
    Reviewed,
    VerifierError,
    corrected_reward,
    right_share,
    verifier_error,
)

__all__ = [
    "BINARY_PRIOR",
    "FEW_FAILING_CLUSTERS",
    "NUM_RESAMPLES",
    "PARTIAL_PRIOR",
    "Calibration",
    "Design",
    "FinitePopulation",
    "Interval",
    "IntraclassCorrelation",
    "McNemar",
    "ProcessBias",
    "RankStability",
    "Reviewed",
    "SequentialPlan",
    "SignalPrior",
    "VarianceComponents",
    "VerifierError",
    "beta_cdf",
    "beta_quantile",
    "blaker",
    "calibration",
    "cheapest_design",
    "clopper_pearson",
    "cluster_bootstrap_mean",
    "cohen_kappa",
    "corrected_difference",
    "corrected_rate",
    "corrected_reward",
    "cronbach_alpha",
    "dependability",
    "design_effect",
    "disattenuated",
    "e_value",
    "effective_sample_size",
    "f_quantile",
    "family_prior",
    "fleiss_kappa",
    "g_study",
    "generalizability",
    "holm",
    "icc_oneway",
    "kendall_tau",
    "korn_graubard",
    "krippendorff_alpha",
    "length_bias",
    "mcnemar_exact",
    "minimal_detectable_effect",
    "num_failing_clusters",
    "paired_bootstrap",
    "pass_at_k",
    "pass_hat_k",
    "pearson",
    "plan_sequential",
    "process_bias",
    "quantile",
    "rank_stability",
    "ranks",
    "repeats_for",
    "required_pairs",
    "reviewed_rate",
    "right_share",
    "sign_agreement",
    "signal_posterior",
    "spearman",
    "spearman_brown",
    "standard_error_of_measurement",
    "stratified_mean",
    "student_quantile",
    "unrestricted",
    "verifier_error",
    "walk_boundary",
    "wilson",
]
