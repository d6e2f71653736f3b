"""What this package computes by C of its own, where a compiler is there: on CPUs, in float32.

*Attention*: torch's, for CPUs, takes padded batches with a mask, and multiplies with half of the vectors that
processors of others than Intel have. Here keys lie in pieces (a prompt that others share, a session's own tokens),
nothing is padded or copied, and each piece is told by where it begins and how much of it a token sees. *Products* of
backward passes, which add where they belong and transpose nothing first. *What stands between products*, in one pass
over its numbers each.
"""

from flightschool.engines.kernels.attention import Run, Span, Work, attend, attend_cached, has_kernels
from flightschool.engines.kernels.elementwise import gated, gated_backward, normed, normed_backward, rotated
from flightschool.engines.kernels.library import SWITCH, find_kernels, serves
from flightschool.engines.kernels.products import add_product, multiplied

__all__ = [
    "SWITCH",
    "Run",
    "Span",
    "Work",
    "add_product",
    "attend",
    "attend_cached",
    "find_kernels",
    "gated",
    "gated_backward",
    "has_kernels",
    "multiplied",
    "normed",
    "normed_backward",
    "rotated",
    "serves",
]
