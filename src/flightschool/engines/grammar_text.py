"""What spans call the support of a grammar. Imports no torch."""

from __future__ import annotations

from flightschool.digest import digest

__all__ = ["grammar_support"]

_PREFIX = "grammar:"


def grammar_support(grammar: str) -> str:
    """Name of the support of completions under a grammar: ``grammar:`` and the digest of its text."""
    return _PREFIX + digest(grammar.encode())
