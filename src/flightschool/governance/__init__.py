"""Governance: who may call what, and the log of who decided what."""

from flightschool.governance.audit_log import AuditLog, LogHead
from flightschool.governance.overrides import Override, override, overrides
from flightschool.governance.rules import (
    AfterCall,
    ArgumentBelow,
    ArgumentEquals,
    ArgumentIn,
    Condition,
    Rule,
    RuleEffect,
    RuleSet,
)

__all__ = [
    "AfterCall",
    "ArgumentBelow",
    "ArgumentEquals",
    "ArgumentIn",
    "AuditLog",
    "Condition",
    "LogHead",
    "Override",
    "Rule",
    "RuleEffect",
    "RuleSet",
    "override",
    "overrides",
]
