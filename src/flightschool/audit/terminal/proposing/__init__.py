"""Models that read a task and propose what to run; a checker that weighs what came of it."""

from flightschool.audit.terminal.proposing.consulting import consult
from flightschool.audit.terminal.proposing.readers import TIMEOUT_S, Readers, open_readers

__all__ = ["TIMEOUT_S", "Readers", "consult", "open_readers"]
