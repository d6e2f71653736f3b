"""The offline report: records of what it says, and one HTML file that shows it."""

from flightschool.reports.audit_page import (
    AuditedFolder,
    AuditPage,
    SharedFlaw,
    ShownFinding,
    ShownWaiver,
    render_audit,
    write_audit,
)
from flightschool.reports.history import HistoryScore, HistoryVersion, history_chart, write_history
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
    "AuditPage",
    "AuditedFolder",
    "AuditedTask",
    "Control",
    "CurvePoint",
    "EpisodePair",
    "FunnelStage",
    "Headline",
    "HistoryScore",
    "HistoryVersion",
    "Override",
    "ReportData",
    "RiskRow",
    "ScanRow",
    "SharedFlaw",
    "ShownFinding",
    "ShownWaiver",
    "StratumRow",
    "history_chart",
    "render_audit",
    "render_report",
    "write_audit",
    "write_history",
    "write_report",
]
