"""flightschool: agents trained, audited and measured well enough to be trusted.

The packages stand in the order of the data flow, and each imports only what stands before it; see the map in
the README. This module stays empty of imports so that the core starts fast and without torch.
"""

__version__ = "0.1.0"
