"""What is sealed, as the workspace knows it and as it lies in the box; ``sealing`` makes both."""

from __future__ import annotations

import msgspec

from flightschool.environments.terminal import PackedFolders
from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation.suites import DEFAULT_LOOKS
from flightschool.evaluation.sweeping import MovedRow
from flightschool.governance import EVALUATION_ROLE, HoldoutKey, Sealed, unseal
from flightschool.lineage import Signature
from flightschool.protocols import Store
from flightschool.records import Record, Suite

__all__ = ["DEFAULT_ALPHA", "SEALED_KIND", "SealedHoldout", "SealedPart", "Terms", "load_sealed", "unseal_part"]

SEALED_KIND = "sealed-holdout"
DEFAULT_ALPHA = 0.05


class SealedHoldout(Record, frozen=True, kw_only=True):
    """What the workspace knows of a sealed holdout: numbers, digests and the box. No id, no text."""

    name: str
    suite: str
    environment: str
    environment_digest: str
    """Of the environment as it was, which is opened again for acceptance."""
    successor: str
    """Digest of what was left of it."""
    digest: str
    """Digest of the sealed suite."""
    num_tasks: int
    num_unaudited: int
    """Tasks without a sound audit when they were sealed."""
    override_reason: str = ""
    """Why they were sealed all the same."""
    strata: dict[str, int]
    """Stratum → number of sealed tasks."""
    looks: int
    """Budget of looks."""
    alpha: float
    """Error probability of all looks together; each has alpha / looks."""
    role: str
    key_id: str
    box: Sealed
    signatures: tuple[Signature, ...] = ()
    """Of the sealed instructions under the key: kin among training texts is counted without their text."""
    complete: bool
    """Whether the erasure was finished."""
    sealed_at: str = ""

    @property
    def level(self) -> float:
        """Coverage of the intervals of one look (Bonferroni over the budget)."""
        return 1.0 - self.alpha / self.looks


class SealedPart(Record, frozen=True, kw_only=True):
    """What lies in the box."""

    suite: Suite
    content: bytes = b""
    """The environment's whole content, where the workspace keeps it; empty where code makes it."""
    checks: bytes = b""
    """Its declared checks as they were; empty where there are none."""
    folders: PackedFolders | None = None
    """Of task folders, those that are sealed."""
    moved: tuple[MovedRow, ...] = ()
    erased_records: tuple[tuple[str, str], ...] = ()
    erased_blobs: tuple[str, ...] = ()


class Terms(Record, frozen=True, kw_only=True):
    """Under which a holdout is sealed.

    Raises:
        InputError: looks or alpha out of range.
    """

    role: str = EVALUATION_ROLE
    """Holds the key."""
    looks: int = DEFAULT_LOOKS
    """How often it may be opened."""
    alpha: float = DEFAULT_ALPHA
    """Error probability of all looks together."""

    def __post_init__(self) -> None:
        if self.looks < 1 or not 0 < self.alpha < 1:
            raise InputError(
                f"{self.looks} looks at alpha {self.alpha}",
                where="seal_holdout",
                expected="one look or more, alpha between 0 and 1",
                mend="correct looks or alpha",
            )


def load_sealed(store: Store, name: str) -> SealedHoldout:
    """The card of a sealed holdout, by its name or its suite's.

    Raises:
        NotFoundError: nothing was sealed under this name.
        GateError: its erasure was cut short and must be finished first.
    """
    for candidate in (name, f"{name}-holdout"):
        if store.has(SEALED_KIND, candidate):
            card = store.get(SEALED_KIND, candidate, SealedHoldout)
            if not card.complete:
                raise GateError(
                    f"sealing {candidate!r} was cut short",
                    where=f"holdout {candidate}",
                    expected="a holdout whose clear text is erased",
                    mend=f"run eval freeze … --name {card.suite} again: it goes on where it was",
                )
            return card
    raise NotFoundError(
        f"nothing is sealed under {name!r}",
        where="holdout",
        expected=", ".join(store.keys(SEALED_KIND)) or "a sealed holdout; there is none yet",
        mend="seal one with: flightschool eval freeze E --name S --holdout 0.1",
    )


def unseal_part(card: SealedHoldout, key: HoldoutKey) -> SealedPart:
    """What lies in the box. Raises ``GateError`` for another key or a changed box."""
    return msgspec.msgpack.decode(unseal(card.box, key.secret), type=SealedPart)
