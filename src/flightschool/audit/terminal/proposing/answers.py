"""What the proposer and the checker reply, read without trust: programs, and opinions about end states."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, TypeVar

import msgspec

from flightschool.audit.terminal.flaws import FLAWS
from flightschool.records import AuditVerdict, Record

__all__ = [
    "MOST_PROPOSALS",
    "Judgement",
    "Opinion",
    "Proposal",
    "Source",
    "read_opinion",
    "read_proposals",
    "read_source",
]

SaidT = TypeVar("SaidT", "_Opinion", "_Source")
ProposalKind = Literal["right", "wrong", "leak"]
Judgement = Literal["right", "contrived", "hollow", "flawed", "unclear"]
Source = Literal["reads", "works", "unclear"]

MOST_PROPOSALS: Final = 12
"""Programs of one reply that are run; what comes after them is left out."""
MOST_PROGRAM_BYTES: Final = 64 << 10
_HEAD: Final = re.compile(r"PROPOSAL\s+(right|wrong|leak)\b\s*([a-z-]*)\s*")
_THOUGHT: Final = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_END: Final = "END PROPOSAL"
_DEFAULT: Final[dict[ProposalKind, str]] = {"right": "one-of-many", "wrong": "mutant-passes", "leak": "answer-in-view"}
_ACCUSES: Final[dict[ProposalKind, AuditVerdict]] = {
    "right": AuditVerdict.REFUSES_CORRECT_WORK,
    "wrong": AuditVerdict.EXPLOITABLE,
    "leak": AuditVerdict.LEAKING,
}


class Proposal(Record, frozen=True, kw_only=True):
    """A program that a model proposes to run, and what it claims of it."""

    kind: ProposalKind
    """``right``: right work that may be refused; ``wrong``: what is not the work and may be rewarded; ``leak``: the
    answer taken from where it can be read."""
    flaw: str
    """Slug of ``FLAWS`` that fits the kind."""
    what: str
    """One sentence about what it does."""
    why: str
    """Why the instruction allows it, or why it may be rewarded."""
    program: str
    """Shell commands."""


class Opinion(Record, frozen=True, kw_only=True):
    """What a checker says of two end states that it was shown under letters.

    ``contrived``: right by the letter, in a form that no honest worker would leave; ``hollow``: wrong, and to be had
    without the work or a substantial part of it; ``flawed``: wrong in a detail.
    """

    reference: Judgement
    """Of what the task's own solution left."""
    candidate: Judgement
    """Of what the program left."""
    alike: bool
    """Whether the two differ in nothing that the instruction decides, so that they stand or fall together."""
    why: str


class _Opinion(msgspec.Struct, forbid_unknown_fields=True):
    fence: str
    A: Judgement
    B: Judgement
    alike: bool
    why: str


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    fence: str
    source: Source
    why: str


def read_proposals(reply: str) -> tuple[Proposal, ...] | str:
    """Programs of a reply; or, as a text, why it cannot be read.

    The form is lines, not JSON: models that escape a long program make mistakes. A reply without any proposal must say
    ``NO PROPOSALS``, so that a refusal to answer is not taken for an acquittal.
    """
    lines = _THOUGHT.sub("", reply).splitlines()
    found: list[Proposal] = []
    place = 0
    while place < len(lines):
        head = _HEAD.fullmatch(lines[place].strip())
        if head is None:
            place += 1
            continue
        ends = [at for at in range(place, len(lines)) if lines[at].strip() == _END]
        if not ends:
            return f"proposal {len(found) + 1} has no line {_END}"
        one = _proposal(head, lines[place + 1 : ends[0]], len(found) + 1)
        if isinstance(one, str):
            return one
        found.append(one)
        place = ends[0] + 1
    if not found and "NO PROPOSALS" not in reply:
        return "there is neither a proposal nor the line NO PROPOSALS"
    return tuple(found[:MOST_PROPOSALS])


def _proposal(head: re.Match[str], body: list[str], number: int) -> Proposal | str:
    kind: ProposalKind = head[1]  # type: ignore[assignment]  # the pattern knows no other word
    says = {"WHAT": "", "WHY": ""}
    starts = [at for at, line in enumerate(body) if line.strip() == "PROGRAM"]
    if not starts:
        return f"proposal {number} has no line PROGRAM"
    key = ""
    for line in body[: starts[0]]:
        word, _, rest = line.strip().partition(" ")
        key, text = (word, rest) if word in says else (key, line.strip())
        if key:
            says[key] = f"{says[key]} {text}".strip()
    program = "\n".join(_unfenced(body[starts[0] + 1 :])) + "\n"
    if not program.strip() or len(program.encode("utf-8", "replace")) > MOST_PROGRAM_BYTES:
        return f"the program of proposal {number} is empty or longer than {MOST_PROGRAM_BYTES} bytes"
    slug = head[2]
    fits = slug in FLAWS and FLAWS[slug].accuses is _ACCUSES[kind]
    clean = {name: text.encode("utf-8", "backslashreplace").decode()[:600] for name, text in says.items()}
    return Proposal(
        kind=kind, flaw=slug if fits else _DEFAULT[kind], what=clean["WHAT"], why=clean["WHY"], program=program
    )


def _unfenced(lines: list[str]) -> list[str]:
    """Without a Markdown fence around the whole."""
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    if len(kept) >= 2 and kept[0].startswith("```") and kept[-1].strip() == "```":
        return kept[1:-1]
    return kept


def read_opinion(reply: str, fence: str, reference_is: Literal["A", "B"]) -> Opinion | str:
    """The checker's opinion of two end states; or, as a text, why the reply is none."""
    said = _object(reply, _Opinion, fence)
    if isinstance(said, str):
        return said
    of_a, of_b = said.A, said.B
    reference, candidate = (of_a, of_b) if reference_is == "A" else (of_b, of_a)
    return Opinion(reference=reference, candidate=candidate, alike=said.alike, why=_short(said.why))


def read_source(reply: str, fence: str) -> tuple[Source, str] | str:
    """Whether a program takes the answer from where it can be read; or, as a text, why the reply does not say."""
    said = _object(reply, _Source, fence)
    return said if isinstance(said, str) else (said.source, _short(said.why))


def _object(reply: str, kind: type[SaidT], fence: str) -> SaidT | str:
    text = _THOUGHT.sub("", reply).strip()
    fenced = re.search(r"```(?:json)?\s*\n(.*?)\n\s*```", text, flags=re.DOTALL)
    try:
        said = msgspec.convert(json.loads(fenced[1] if fenced else text), kind)
    except (ValueError, RecursionError) as error:
        return f"the reply is no JSON object of the form that was asked for: {str(error)[:200]}"
    return said if said.fence == fence else "the reply repeats another fence"


def _short(text: str) -> str:
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())[:600]
