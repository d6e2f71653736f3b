"""The offline report: records of what it says, and one HTML file that shows it."""

from flightschool.reports.records import (
    AuditedTask,
    Control,
    CurvePoint,
    EpisodePair,
    FunnelStage,
    Headline,
    Override,
    ReportData,
    RiskRow,
    ScanRow,
    StratumRow,
)
from flightschool.reports.render import render_report, write_report

__all__ = [
    "AuditedTask",
    "Control",
    "CurvePoint",
    "EpisodePair",
    "FunnelStage",
    "Headline",
    "Override",
    "ReportData",
    "RiskRow",
    "ScanRow",
    "StratumRow",
    "render_report",
    "write_report",
]
