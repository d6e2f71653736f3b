"""What counts as a secret or as personal data in a text, and in a value under a telling key.

Detectors err to the side of replacing: a false alarm costs a readable id (its joins survive, since the pseudonym is
consistent), a miss stores what must not be stored. Card numbers need a length and prefix that some issuer uses and
a valid check digit (Luhn, ISO/IEC 7812-1 annex B); of random 16-digit ids about 1 in 20 passes, so bare digits under a
key that names another kind of number (order, tracking, timestamp, trace …) are left alone. Phone numbers need their
usual form or a telling key; bare digits in a text are no phone number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from flightschool.records import Json

__all__ = ["DETECTORS", "PSEUDONYM", "Found", "find", "fits_key", "is_card", "is_pseudonym", "kind_of_key", "luhn"]

Found = tuple[int, int, str]
"""Begin, end and kind."""

DETECTORS = ("secret", "email", "card", "phone")
"""Kinds that are looked for without a list; ``name`` is looked for with one."""

PSEUDONYM = re.compile(r"(?:SECRET|EMAIL|CARD|PHONE|NAME)_[0-9a-f]{12}")
"""What stands in the place of what was found."""

_SHORTEST = len("a@b.cd")
_SHORT = 120
_DIGITS = re.compile(r"(?:\d[ ().\-/]{0,3}){8}")
"""Fewer digits in a row are neither a card nor a phone number."""
_SECRET_MARKS = (
    "sk-", "k_live_", "k_test_", "whsec_", "gh", "glpat-", "xox", "xapp-", "akia", "asia", "agpa", "aida", "aroa",
    "aiza", "ya29.", "hf_", "npm_", "pypi-", "sg.", "dop_v1_", "age-secret", "eyj", "-----begin", "bearer", "basic",
    "token", "://", "pass", "pwd", "secret", "key", "authorization", "credential",
)  # fmt: skip
"""In lower case; a text without any of them holds no secret that the patterns below find."""

# ------------------------------------------------------------------------------------------------ secrets

_TOKENS = "|".join(
    (
        r"sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_\-]{16,}",  # model providers
        r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}",
        r"whsec_[A-Za-z0-9+/=]{16,}",
        r"gh[pousr]_[A-Za-z0-9]{20,}",
        r"github_pat_[A-Za-z0-9_]{20,}",
        r"glpat-[A-Za-z0-9_\-]{16,}",
        r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",
        r"xapp-[A-Za-z0-9\-]{10,}",
        r"(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}",
        r"AIza[A-Za-z0-9_\-]{30,}",
        r"ya29\.[A-Za-z0-9_\-]{20,}",
        r"hf_[A-Za-z0-9]{20,}",
        r"npm_[A-Za-z0-9]{30,}",
        r"pypi-[A-Za-z0-9_\-]{30,}",
        r"SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}",
        r"dop_v1_[a-f0-9]{32,}",
        r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
        r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}",  # JSON Web Tokens
    )
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9_])(?:{_TOKENS})")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_BEARER = re.compile(r"\b(?:bearer|basic|token)[ \t]+(?P<value>[A-Za-z0-9+/_\-.~]{16,}={0,2})", re.IGNORECASE)
_URL_PASSWORD = re.compile(
    r"\b[a-z][a-z0-9+.\-]{1,20}://[^\s/:@\"']{0,64}:(?P<value>[^\s/@\"']{1,128})@", re.IGNORECASE
)
_SECRET_WORD = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|client[_\-]?secret|api[_\-]?key|access[_\-]?key|secret[_\-]?key|"
    r"private[_\-]?key|(?:access|auth|refresh|session|id|bearer)[_\-]?token|authorization|credentials?)"
)
_ASSIGNED = re.compile(
    rf"(?<![A-Za-z]){_SECRET_WORD}[\"']?[ \t]*(?::|=|:=|=>)[ \t]*[\"']?(?P<value>[^\s\"',;&<>(){{}}\[\]]{{4,}})",
    re.IGNORECASE,
)

# ------------------------------------------------------------------------------------------------ personal data

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])[^\W_](?:[\w.%+'\-]{0,62}[\w%+\-])?@(?:[^\W_](?:[\w\-]{0,61}[^\W_])?\.)+[^\W\d_]{2,24}(?![\w\-])"
)
_CARD = re.compile(
    r"(?<![\w.\-])(?:\d{13,19}|\d{4}(?:[ \-]\d{4}){2,3}(?:[ \-]\d{1,4})?|\d{4}[ \-]\d{6}[ \-]\d{4,5})(?![\w\-]|\.\d)"
)
_PHONE = re.compile(
    r"(?<![\w.+\-/])(?:"
    r"\+\d{1,3}(?:[ .\-/]?\(?\d{1,4}\)?){2,5}"  # international, as E.164 allows: at most 15 digits, checked below
    r"|(?:1[ .\-])?(?:\(\d{3}\)[ ]?|\d{3}[ .\-])\d{3}[ .\-]\d{4}"  # North America
    r"|0\d{1,4}[ /\-]\d{2,4}(?:[ /\-]\d{2,4}){1,3}"  # national with trunk prefix
    r")(?![\w\-]|\.\d)"
)
_ISSUERS: tuple[tuple[re.Pattern[str], frozenset[int]], ...] = (
    (re.compile(r"4"), frozenset({13, 16, 19})),
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), frozenset({16})),
    (re.compile(r"3[47]"), frozenset({15})),
    (re.compile(r"6011|65|64[4-9]"), frozenset({16, 19})),
    (re.compile(r"35(?:2[89]|[3-8])"), frozenset({16, 19})),
    (re.compile(r"30[0-5]|3[689]"), frozenset({14, 16, 19})),
    (re.compile(r"62|81"), frozenset({16, 17, 18, 19})),
    (re.compile(r"50|5[6-9]|6[0-9]"), frozenset({16, 19})),
)


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of those before it (ISO/IEC 7812-1 annex B)."""
    total = 0
    for position, char in enumerate(reversed(digits)):
        value = int(char)
        if position % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def is_card(text: str) -> bool:
    """Whether digits (blanks and dashes apart) can be a card number: issuer prefix, length and check digit."""
    digits = re.sub(r"[ \-]", "", text)
    if not digits.isascii() or not digits.isdigit() or len(set(digits)) == 1:
        return False
    return any(p.match(digits) and len(digits) in lengths for p, lengths in _ISSUERS) and luhn(digits)


def is_pseudonym(text: str) -> bool:
    """Whether the whole text is a pseudonym."""
    return PSEUDONYM.fullmatch(text) is not None


def find(text: str, *, bare_digits_are: str = "card") -> list[Found]:
    """What a text holds, in order, without overlaps; the first detector that claims a place has it.

    Args:
        text: free text, or one value.
        bare_digits_are: ``card``, or ``other`` where the key says that bare digits are something else.
    """
    if len(text) < _SHORTEST:
        return []
    # Recordings say the same short things over and over: states, names of fields, ids.
    return list(_found_again(text, bare_digits_are) if len(text) <= _SHORT else _find(text, bare_digits_are))


def _find(text: str, bare_digits_are: str) -> tuple[Found, ...]:
    found: list[Found] = []
    for begin, end, kind in _candidates(text):
        piece = text[begin:end]
        if PSEUDONYM.search(piece) or any(begin < e and b < end for b, e, _ in found):
            continue
        if kind == "card" and (not is_card(piece) or (bare_digits_are != "card" and piece.isdigit())):
            continue
        if kind == "phone" and not _is_phone(piece):
            continue
        found.append((begin, end, kind))
    return tuple(sorted(found))


_found_again = lru_cache(maxsize=20_000)(_find)


def _candidates(text: str) -> Iterator[Found]:
    lowered = text.lower()
    if any(mark in lowered for mark in _SECRET_MARKS):
        yield from _secrets(text)
    if "@" in text:
        yield from ((m.start(), m.end(), "email") for m in _EMAIL.finditer(text))
    if _DIGITS.search(text):
        yield from ((m.start(), m.end(), "card") for m in _CARD.finditer(text))
        yield from ((m.start(), m.end(), "phone") for m in _PHONE.finditer(text))


def _secrets(text: str) -> Iterator[Found]:
    if "-----BEGIN" in text:
        yield from ((m.start(), m.end(), "secret") for m in _PEM.finditer(text))
    yield from ((m.start(), m.end(), "secret") for m in _TOKEN.finditer(text))
    for pattern in (_BEARER, _URL_PASSWORD, _ASSIGNED):
        yield from ((*m.span("value"), "secret") for m in pattern.finditer(text))


def _is_phone(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    dates = re.fullmatch(r"(?:19|20)\d\d[.\-/ ]\d\d[.\-/ ]\d\d", text) or re.fullmatch(
        r"0\d[/\-]\d\d[/\-]\d{2,4}", text
    )
    return 8 <= len(digits) <= 15 and not dates


# ------------------------------------------------------------------------------------------------ keys

_KEY_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET_KEYS = frozenset(
    {
        "password", "passwd", "passphrase", "pwd", "secret", "client secret", "api key", "apikey", "access key",
        "secret key", "secret access key", "private key", "authorization", "credential", "credentials", "token",
        "access token", "auth token", "refresh token", "session token", "id token", "bearer token", "cookie",
        "set cookie", "connection string", "otp", "cvv", "cvc", "pin code",
    }
)  # fmt: skip
_PHONE_KEYS = frozenset(
    {"phone", "telephone", "mobile", "msisdn", "fax", "phone number", "mobile number", "tel", "cell"}
)
_CARD_KEYS = frozenset({"card", "card number", "pan", "credit card", "credit card number", "cc number", "card no"})
_OTHER_NUMBERS = frozenset(
    {
        "order", "orders", "tracking", "timestamp", "time", "ts", "trace", "span", "request", "seq", "sequence",
        "offset", "hash", "digest", "ean", "gtin", "upc", "isbn", "sku", "barcode", "serial", "invoice", "ticket",
        "reservation", "shipment", "product", "item", "ns", "us", "ms", "nano", "nanos", "epoch", "created", "updated",
        "count", "size", "bytes", "balance", "amount", "total",
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def kind_of_key(key: str) -> str:
    """What a key says of its value: ``secret``, ``phone``, ``card``, ``other`` (another kind of number) or nothing."""
    words = [word.lower() for word in _KEY_WORDS.split(key) if word]
    tails = {" ".join(words[start:]) for start in range(len(words))}
    if tails & _SECRET_KEYS and not (words[-1:] == ["token"] and set(words) & {"page", "next", "continuation", "max"}):
        return "secret"
    if tails & _PHONE_KEYS:
        return "phone"
    if tails & _CARD_KEYS:
        return "card"
    return "other" if set(words) & _OTHER_NUMBERS else ""


def fits_key(value: Json, kind: str) -> bool:
    """Whether a value under a key of this kind is of that kind as a whole."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    text = str(value).strip()
    if not text or PSEUDONYM.search(text):
        return False
    digits = re.sub(r"[\s().+\-/]", "", text)
    if kind == "secret":
        return isinstance(value, str) and len(text) >= 4
    if kind == "phone":
        return digits.isdigit() and 7 <= len(digits) <= 15
    return kind == "card" and digits.isdigit() and 12 <= len(digits) <= 19 and len(set(digits)) > 1
