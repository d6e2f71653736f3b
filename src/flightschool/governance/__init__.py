"""Governance: who may call what, the log of who decided what, and the keys of what is sealed."""

from flightschool.governance.audit_log import AuditLog, LogHead
from flightschool.governance.ciphers import Sealed, seal, unseal
from flightschool.governance.keys import EVALUATION_ROLE, HoldoutKey, KeyRing
from flightschool.governance.known_errors import KnownError, known_error
from flightschool.governance.overrides import Override, distinct, override, overrides
from flightschool.governance.review_drawing import (
    ReviewCandidate,
    ReviewCell,
    ReviewItem,
    ReviewSheet,
    draw_sheet,
)
from flightschool.governance.reviews import (
    Agreement,
    ReviewRates,
    add_label,
    agreement,
    labels_of,
    load_sheet,
    review_rates,
    reviewed_of,
    save_sheet,
    settled,
    sheets_of,
)
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
from flightschool.governance.withholding import (
    ReducedEnvironment,
    Withdrawn,
    require_not_withdrawn,
    served,
    withdraw,
)

__all__ = [
    "EVALUATION_ROLE",
    "AfterCall",
    "Agreement",
    "ArgumentBelow",
    "ArgumentEquals",
    "ArgumentIn",
    "AuditLog",
    "Condition",
    "HoldoutKey",
    "KeyRing",
    "KnownError",
    "LogHead",
    "Override",
    "ReducedEnvironment",
    "ReviewCandidate",
    "ReviewCell",
    "ReviewItem",
    "ReviewRates",
    "ReviewSheet",
    "Rule",
    "RuleEffect",
    "RuleSet",
    "Sealed",
    "Withdrawn",
    "add_label",
    "agreement",
    "distinct",
    "draw_sheet",
    "known_error",
    "labels_of",
    "load_sheet",
    "override",
    "overrides",
    "require_not_withdrawn",
    "review_rates",
    "reviewed_of",
    "save_sheet",
    "seal",
    "served",
    "settled",
    "sheets_of",
    "unseal",
    "withdraw",
]
