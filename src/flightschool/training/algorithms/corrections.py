"""Corrections by name: what may make up for a sampling policy that is not the trainer's.

| name | weight | rejects | source |
|---|---|---|---|
| ``none`` | – | – | |
| ``is`` | w_t | – | importance sampling |
| ``tis`` | min(w_t, cap) | – | Yao et al. 2025, truncated importance sampling |
| ``icepop`` | w_t | tokens with w_t outside .5 … 5 | Ring-1T, arXiv:2510.18855 (IcePop); MIS at token level |
| ``sequence_tis`` | min(W, cap) | – | Liu et al. 2025, "When speed kills stability" |
| ``sequence_mis`` | W | members with W outside .5 … 2 | the same: masked importance sampling |
| ``geometric`` | min(w_t, cap) | members with W̄ outside .999 … 1.001 | the same: geometric rejection |

w_t = π_old / μ of a token, W its product over a member's tokens, W̄ the geometric mean. W is unbiased and its variance
grows with length; W̄ asks for a mean mismatch and does not grow; w_t is biased and tame. Rejected tokens count in the
denominator.

By hand: w = (1.5, 8, .6) gives under ``tis`` (1.5, 2, .6), under ``icepop`` (1.5, 0, .6), under ``sequence_tis`` 2
thrice, under ``sequence_mis`` 0 thrice (W = 7.2), under ``geometric`` 0 thrice (W̄ = 1.93).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from flightschool.training.algorithms.shapes import Correction

__all__ = ["CORRECTIONS"]

CORRECTIONS: Mapping[str, Correction] = MappingProxyType(
    {
        "none": Correction(weight="none"),
        "is": Correction(cap=math.inf),
        "tis": Correction(),
        "icepop": Correction(cap=math.inf, reject="token", low=0.5, high=5.0),
        "sequence_tis": Correction(weight="sequence"),
        "sequence_mis": Correction(weight="sequence", cap=math.inf, reject="sequence", low=0.5, high=2.0),
        "geometric": Correction(reject="geometric", low=0.999, high=1.001),
    }
)
"""By name; ``tis_cap``, ``reject_low`` and ``reject_high`` of the settings change their bounds."""
