"""Redaction: secrets and personal data leave a recording before it reaches the workspace, and joins survive.

``Redactor`` replaces what ``detectors`` find by pseudonyms: one value, one pseudonym, wherever it stands, made with a
key that the workspace keeps. So an e-mail in an argument still equals the e-mail in an earlier result.
"""

from flightschool.traces.redaction.detectors import DETECTORS, find
from flightschool.traces.redaction.key import workspace_key
from flightschool.traces.redaction.names import read_names
from flightschool.traces.redaction.redactor import RedactionReport, Redactor, redact_state

__all__ = [
    "DETECTORS",
    "RedactionReport",
    "Redactor",
    "find",
    "read_names",
    "redact_state",
    "workspace_key",
]
