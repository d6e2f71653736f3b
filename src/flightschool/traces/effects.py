"""Guesses that traces leave no choice but to make: is an answer an error, and does a tool change the world.

Both are rules of thumb, stated here once. Whatever a trace *says* (an error flag, a tool definition with an effect)
wins over them.
"""

from __future__ import annotations

import re

from flightschool.records import Effect, Json

__all__ = ["effect_by_name", "looks_like_error"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VERBS: dict[Effect, frozenset[str]] = {
    Effect.READ: _words(
        "get list search find read fetch lookup look query show view check describe count calculate compute think "
        "validate verify estimate compare status inspect browse retrieve select history preview explain predict "
        "summarize summarise plan convert parse diff load open peek info help"
    ),
    Effect.SEND: _words(
        "send email mail notify message sms publish broadcast transfer escalate page forward reply announce alert "
        "tweet dispatch"
    ),
    Effect.DESTROY: _words("delete destroy drop purge erase wipe truncate uninstall terminate"),
    Effect.WRITE: _words(
        "update create book cancel set add insert write edit modify change assign reserve release close reopen "
        "approve reject schedule reschedule upload save store put patch move rename pay refund exchange return order "
        "buy purchase register enable disable start stop restart submit request issue remove revoke grant apply "
        "execute run exec commit merge push complete resolve acknowledge decline post log record mark increment"
    ),
}
_ERROR_TEXT = re.compile(r"\s*(error|exception|traceback \(most recent call last\))\b", re.IGNORECASE)


def effect_by_name(name: str) -> tuple[Effect | None, str]:
    """The effect that the first known verb in a tool's name suggests, with that verb; (None, "") without one."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for word in re.split(r"[^a-z0-9]+", words):
        for effect, verbs in _VERBS.items():
            if word in verbs:
                return effect, word
    return None, ""


def looks_like_error(value: Json) -> bool:
    """Whether an unflagged answer reads as an error: a text that begins with "Error", or an object that says so."""
    if isinstance(value, str):
        return _ERROR_TEXT.match(value) is not None
    if isinstance(value, dict):
        return bool(value.get("error")) or value.get("is_error") is True or value.get("isError") is True
    return False
