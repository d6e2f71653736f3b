"""What a trace set holds, in numbers: the true distribution of the work, and where time and calls go."""

from flightschool.traces.summary.records import (
    FanOut,
    IntentCluster,
    LatencyNumbers,
    StratumUse,
    ToolUse,
    TraceSummary,
)
from flightschool.traces.summary.summarising import summarise

__all__ = ["FanOut", "IntentCluster", "LatencyNumbers", "StratumUse", "ToolUse", "TraceSummary", "summarise"]
