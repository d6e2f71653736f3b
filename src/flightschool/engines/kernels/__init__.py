"""What this package computes by C of its own, where a compiler is there: attention, on CPUs and in float32.

torch's attention for CPUs takes padded batches with a mask, and multiplies with half of the vectors that processors
of others than Intel have. Here keys lie in pieces (a prompt that others share, a session's own tokens), nothing is
padded or copied, and each piece is told by where it begins and how much of it a token sees.
"""

from flightschool.engines.kernels.attention import Run, Span, Work, attend, attend_cached, has_kernels
from flightschool.engines.kernels.library import SWITCH, find_kernels
from flightschool.engines.kernels.products import add_product, can_multiply, multiplied

__all__ = [
    "SWITCH",
    "Run",
    "Span",
    "Work",
    "add_product",
    "attend",
    "attend_cached",
    "can_multiply",
    "find_kernels",
    "has_kernels",
    "multiplied",
]
