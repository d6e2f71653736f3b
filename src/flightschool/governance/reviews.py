"""Labels of people on a review sheet, and how often the verifier was wrong by them.

A sheet may be labelled in part. Its items stand in one random order, so whoever labels from the top has labelled a
random part of each cell, and the probability of *being labelled* is labelled / size. Skipping hard ones breaks this.
A label is written to the audit log before it is kept, and nothing overwrites one: a reviewer's last word holds, the
words before it stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from flightschool.errors import InputError
from flightschool.governance.audit_log import AuditLog
from flightschool.governance.review_drawing import ReviewSheet
from flightschool.protocols import Store
from flightschool.records import Record, ReviewLabel
from flightschool.statistics import Interval, Reviewed, VerifierError, cohen_kappa, right_share, verifier_error

__all__ = [
    "Agreement",
    "ReviewRates",
    "add_label",
    "agreement",
    "labels_of",
    "load_sheet",
    "review_rates",
    "reviewed_of",
    "save_sheet",
    "settled",
    "sheets_of",
]

SHEET_KIND = "review-sheet"
LABEL_KIND = "review-label"
ACTION = "review-label"
Label: TypeAlias = Literal["right", "wrong", "hack"]
LABELS = get_args(Label)


class Agreement(Record, frozen=True, kw_only=True):
    """How far two reviewers agree beyond chance."""

    reviewers: tuple[str, str]
    num_items: int
    """Attempts that both labelled."""
    num_equal: int
    kappa: float
    """Cohen's; NaN where both gave one and the same label throughout."""


class ReviewRates(Record, frozen=True, kw_only=True):
    """What the labels say of the verifier."""

    error: VerifierError | None
    """None where nothing is labelled."""
    pass_rate: float
    """Share of the pool that the verifier passed."""
    right: Interval | None
    """Share of the pool that is right work by the labels (double sampling); None where nothing is labelled."""
    num_left: int
    """Items without a label that holds."""
    disputed: tuple[str, ...]
    """Attempts on which as many reviewers say one thing as another: not counted until one more speaks."""
    num_pool: int
    num_unspoken: int
    """Attempts of the pool in cells of which nothing is labelled yet: the rates do not speak for them."""


def _now() -> datetime:
    return datetime.now(UTC)


# ------------------------------------------------------------------------------------------------ keeping


def save_sheet(store: Store, sheet: ReviewSheet) -> ReviewSheet:
    """Keep a sheet; one of this name that was drawn with the same settings is given back instead, labels and all.

    Raises:
        InputError: the name is taken by a sheet of other settings.
    """
    if store.put_new(SHEET_KIND, sheet.name, sheet):
        return sheet
    kept = store.get(SHEET_KIND, sheet.name, ReviewSheet)
    same = all(getattr(kept, field) == getattr(sheet, field) for field in ("target", "by", "num", "seed"))
    if not same:
        raise InputError(
            f"a review sheet {sheet.name!r} was drawn before, from {kept.target} with -n {kept.num} --seed {kept.seed}",
            where=sheet.name,
            expected="a new name, or the same settings to go on with it",
            mend=f"see it with: flightschool review list {sheet.name}; or choose another --name",
        )
    return kept


def load_sheet(store: Store, name: str) -> ReviewSheet:
    """A kept sheet. Raises ``NotFoundError``."""
    return store.get(SHEET_KIND, name, ReviewSheet)


def sheets_of(store: Store, attempt: str = "") -> tuple[ReviewSheet, ...]:
    """All sheets, oldest first; with an attempt, those on which it stands."""
    sheets = (sheet for _, sheet in store.items(SHEET_KIND, ReviewSheet))
    return tuple(s for s in sheets if not attempt or any(item.attempt == attempt for item in s.items))


def add_label(
    store: Store,
    sheet: ReviewSheet,
    attempt: str,
    *,
    reviewer: str,
    label: str,
    reason: str,
    now: Callable[[], datetime] = _now,
) -> ReviewLabel:
    """Write one label, first to the audit log, then to the store. A second one of the same reviewer comes after it.

    Raises:
        InputError: an attempt that is not on the sheet, no such label, no reviewer or no reason.
    """
    item = sheet.item(attempt)
    if label not in LABELS:
        raise InputError(
            f"there is no label {label!r}",
            where="review label",
            expected="right, wrong or hack",
            mend="hack is wrong work that was made to look right",
        )
    for name, value in (("reviewer", reviewer), ("reason", reason)):
        if not value.strip():
            raise InputError(
                f"a label needs a {name}",
                where=f"label of {attempt}",
                expected="who judges and why",
                mend="say it; both are kept in the audit log",
            )
    own = reviewer.strip().replace("/", ":")  # the key's parts end at slashes
    place = f"{sheet.name}/{sheet.items.index(item):06d}/{own}/"
    number = len(store.keys(LABEL_KIND, place))
    before = "" if number == 0 else store.get(LABEL_KIND, f"{place}{number - 1:06d}", ReviewLabel).label
    detail = {"attempt": attempt, "label": label, "reason": reason.strip(), "before": before}
    entry = AuditLog(store, now=now).append(reviewer.strip(), ACTION, sheet.name, detail)
    written = ReviewLabel(
        sheet=sheet.name,
        attempt=attempt,
        reviewer=entry.actor,
        label=cast("Label", label),
        reason=reason.strip(),
        passed=item.passed,
        stratum=item.stratum,
        inclusion=item.inclusion,
        number=number,
        at=entry.at,
        entry=entry.digest,
    )
    while not store.put_new(LABEL_KIND, f"{place}{written.number:06d}", written):
        written = msgspec.structs.replace(written, number=written.number + 1)
    return written


def labels_of(store: Store, sheet: str) -> tuple[ReviewLabel, ...]:
    """All labels of a sheet in the order of writing, those that no longer hold included."""
    return tuple(label for _, label in store.items(LABEL_KIND, ReviewLabel, f"{sheet}/"))


# ------------------------------------------------------------------------------------------------ what they say


def settled(labels: Iterable[ReviewLabel]) -> dict[str, str]:
    """Attempt → what most of its reviewers say last; empty text where as many say right as say it is not.

    Where it is not right, it is a hack if at least as many say so as say ``wrong``.
    """
    voices: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (attempt, _), label in _latest(labels).items():
        voices[attempt][label] += 1
    found: dict[str, str] = {}
    for attempt, counts in voices.items():
        right, not_right = counts["right"], counts["wrong"] + counts["hack"]
        if right == not_right:
            found[attempt] = ""
        elif right > not_right:
            found[attempt] = "right"
        else:
            found[attempt] = "hack" if counts["hack"] >= counts["wrong"] else "wrong"
    return found


def _latest(labels: Iterable[ReviewLabel]) -> dict[tuple[str, str], str]:
    """(attempt, reviewer) → the label that holds."""
    last: dict[tuple[str, str], ReviewLabel] = {}
    for label in labels:
        key = (label.attempt, label.reviewer)
        if key not in last or last[key].number < label.number:
            last[key] = label
    return {key: label.label for key, label in last.items()}


def reviewed_of(sheet: ReviewSheet, labels: Sequence[ReviewLabel]) -> list[Reviewed]:
    """The items with a label that holds, each with the probability of being labelled."""
    found = settled(labels)
    counted = [(item, found[item.attempt]) for item in sheet.items if found.get(item.attempt)]
    num_labelled = Counter((item.stratum, item.passed) for item, _ in counted)
    sizes = {(cell.stratum, cell.passed): cell.size for cell in sheet.cells}
    return [
        Reviewed(
            stratum=item.stratum,
            passed=item.passed,
            label=cast("Label", label),
            inclusion=num_labelled[item.stratum, item.passed] / sizes[item.stratum, item.passed],
        )
        for item, label in counted
    ]


def review_rates(sheet: ReviewSheet, labels: Sequence[ReviewLabel], *, level: float = 0.95) -> ReviewRates:
    """ρ0 and ρ1 of the pool from what is labelled so far (``statistics.verifier_error``)."""
    found = settled(labels)
    reviewed = reviewed_of(sheet, labels)
    sizes = {(cell.stratum, cell.passed): cell.size for cell in sheet.cells}
    spoken = {(one.stratum, one.passed) for one in reviewed}
    return ReviewRates(
        error=verifier_error(reviewed, level=level, seed=sheet.seed) if reviewed else None,
        pass_rate=sum(size for (_, passed), size in sizes.items() if passed) / sum(sizes.values()),
        right=right_share(reviewed, level=level, seed=sheet.seed) if reviewed else None,
        num_left=len(sheet.items) - len(reviewed),
        disputed=tuple(item.attempt for item in sheet.items if found.get(item.attempt) == ""),
        num_pool=sum(sizes.values()),
        num_unspoken=sum(size for cell, size in sizes.items() if cell not in spoken),
    )


def agreement(labels: Iterable[ReviewLabel]) -> tuple[Agreement, ...]:
    """Cohen's κ of each two reviewers who labelled attempts in common, by the labels that hold."""
    said: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for (attempt, reviewer), label in _latest(labels).items():
        said[reviewer][attempt] = label
    found = []
    for one, other in combinations(sorted(said), 2):
        common = sorted(said[one].keys() & said[other].keys())
        if common:
            left, right = [said[one][a] for a in common], [said[other][a] for a in common]
            equal = sum(a == b for a, b in zip(left, right, strict=True))
            kappa = cohen_kappa(left, right)
            found.append(Agreement(reviewers=(one, other), num_items=len(common), num_equal=equal, kappa=kappa))
    return tuple(found)
