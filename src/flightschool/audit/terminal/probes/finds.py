"""Places in the policy's view that hold what an output should be, and the shell that reads them.

What a file or a variable is called says nothing, since names can be changed; what stands beside an answer does.
"""

from __future__ import annotations

import base64
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.surface import mentions
from flightschool.audit.terminal.trial import Trial
from flightschool.audit.terminal.unwrapping import coded, cut, cut_pipe, unpacked

__all__ = ["Find", "in_files", "in_variables", "is_input", "needles_of", "unnamed"]

LEAST_CHARACTERS: Final = 4
"""Shorter answers stand everywhere by chance; they count only beside a word that says what they are."""
CHANCE_CHARACTERS: Final = 10
LEAST_ALONE: Final = 3
"""Shorter ones are guessed, not read."""
FEW_WORDS: Final = 6
MOST_RECORD_BYTES: Final = 4096
MOST_CHANCE: Final = 0.01
MOST_PIECES: Final = 6
MOST_STRETCH: Final = 120
"""Bytes between two words of an answer that still stand together."""
_TELLING: Final = re.compile(
    r"answer|expect|solution|secret|result|truth|gold|correct|flag|hint|oracle|reference|target|key|final|output", re.I
)
_SEARCHES: Final = re.compile(r"grep -\w*[rR]|\bfind /|os\.walk|rglob|glob\(|\brg ")
_WORDS: Final = re.compile(rb"[\w.+-]+")
_NUMBERS: Final = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


@dataclass(frozen=True, kw_only=True)
class Find:
    """A place in view that holds what an output should be."""

    flaw: str
    where: str
    command: str
    """Shell that prints it."""
    output: Output


def unnamed(trial: Trial) -> list[Shipped]:
    """Readable files that are no input: neither the instruction nor the reference speaks of them."""
    told = f"{trial.surface.instruction}\n{trial.surface.solution}"
    made = {output.path for output in trial.work.outputs}
    return [
        one
        for one in trial.surface.shipped
        if one.readable
        and one.path not in made
        and not is_input(told, one.path, made)
        and not one.path.startswith("/etc/ld.so")
    ]


def is_input(told: str, path: str, made: set[str]) -> bool:
    """Whether instruction or reference speak of a file: by its path or name, or by a folder that is looked through."""
    names = {posixpath.basename(one) for one in made}
    if path in told or (posixpath.basename(path) not in names and mentions(told, path)):
        return True  # a name that an output has too says nothing of this file
    folder = posixpath.dirname(path)
    if folder != "/" and _SEARCHES.search(told) and re.search(rf"{re.escape(folder)}(?![\w.-])", told):
        return True  # whoever looks through a folder finds what lies there
    return folder.count("/") >= 2 and re.search(rf"{re.escape(folder)}/?(?:\*|[\s\"'`;)]|$)", told) is not None


def needles_of(output: Output) -> list[bytes]:
    """Contents that say what the output should be: as it is, and without white space around it."""
    found = [output.data, output.data.strip()]
    return [one for one in dict.fromkeys(found) if len(one) >= LEAST_CHARACTERS]


def in_files(trial: Trial) -> Iterator[Find]:
    """The answer in files that are no input: as it is, in a code, packed, or short beside a word that tells."""
    for one in unnamed(trial):
        flaw = "cross-step-leak" if one.step else _flaw_of(one.path)
        quoted = shlex.quote(one.path)
        for output in trial.work.outputs:
            if output.before is not None and len(output.data) > len(one.data):
                continue
            for needle in needles_of(output):
                at = one.data.find(needle)
                if at >= 0 and _says_what(needle, one, at):
                    yield Find(flaw=flaw, where=one.path, command=cut(quoted, at, len(needle)), output=output)
                    break
                decode = coded(needle, one, quoted)
                if decode:
                    yield Find(flaw=flaw, where=one.path, command=decode, output=output)
                    break
            else:
                yield from _short(one, output, flaw)
                yield from _packed(one, output)
                yield from in_pieces(one, output, flaw)


def _says_what(needle: bytes, one: Shipped, at: int) -> bool:
    """A long answer speaks for itself; a short one may stand somewhere by chance.

    What the file is called says nothing, for names can be changed: a short answer counts where the file says little
    else, beside a word that tells what it is, or as a number that chance would hardly put there.
    """
    answer = needle.strip()
    if len(answer) >= CHANCE_CHARACTERS or _says_little_else(one, answer):
        return True
    near = one.data[max(0, at - 80) : at].decode(errors="replace")
    if _TELLING.search(near) is not None or _is_no_chance(answer, one, at):
        return True
    return is_constant(one.data, answer, at)


def is_constant(data: bytes, answer: bytes, at: int) -> bool:
    """Whether compiled Python holds the answer as a text of its own: its length stands before it (``marshal``).

    Names and texts of the module have such lengths too, so a word that a program may well have counts for nothing:
    only what mixes cases or holds no vowel, a digit or a sign is no such word.
    """
    if data[2:4] != b"\r\n" or at < 5 or len(answer) < LEAST_CHARACTERS:
        return False
    whole = data[at - 1] == len(answer) or data[at - 4 : at] == len(answer).to_bytes(4, "little")
    text = answer.decode(errors="replace")
    return whole and (re.search(r"[^a-z_]", text) is not None or not re.search(r"[aeiouy]", text))


def _says_little_else(one: Shipped, answer: bytes) -> bool:
    """Whether a file is the answer alone, or a record of a few words with the answer as one of its values."""
    if len(answer) < LEAST_ALONE or len(one.data) > MOST_RECORD_BYTES:
        return False
    words = _WORDS.findall(one.data)
    return one.data.strip() == answer or (len(words) <= FEW_WORDS and answer in words)


def _is_no_chance(answer: bytes, one: Shipped, at: int) -> bool:
    """A number of d digits, as a value of its own, stands among m numbers by chance about m / 10^(d-1) times."""
    digits = sum(byte in b"0123456789" for byte in answer)
    if digits < len(answer.lstrip(b"-")) - 1 or digits < LEAST_ALONE:
        return False
    alone = re.compile(rb"(?<![\w.])" + re.escape(answer) + rb"(?![\w]|\.\d)").match(one.data, at)
    return alone is not None and len(_NUMBERS.findall(one.data)) < MOST_CHANCE * 10 ** (digits - 1)


def _short(one: Shipped, output: Output, flaw: str) -> Iterator[Find]:
    """A short answer: all that a file says, or the value of a telling word."""
    answer = output.data.strip()
    if not answer or len(answer) >= LEAST_CHARACTERS or len(one.data) > 1 << 16:
        return
    quoted = shlex.quote(one.path)
    if one.data.strip() == answer and len(answer) >= LEAST_ALONE:
        yield Find(flaw=flaw, where=one.path, command=f"cat {quoted}", output=output)
    told = re.compile(
        rb"(?i)(?:answer|expected|solution|secret|result|correct)\w*['\"]?\s*[:=]+\s*['\"]?("
        + re.escape(answer)
        + rb")(?![\w.])"
    )
    match = told.search(one.data)
    if match:
        yield Find(flaw=flaw, where=one.path, command=cut(quoted, match.start(1), len(answer)), output=output)


def in_pieces(one: Shipped, output: Output, flaw: str) -> Iterator[Find]:
    """An answer of several words whose words all stand in their order within a short stretch of a file.

    By chance numbers do so seldom: with m numbers in the file, about m choices for the first and as many as stand in
    the stretch for each other one, against 10 to the number of their digits.
    """
    words = output.data.split()
    if not 2 <= len(words) <= MOST_PIECES or len(one.data) > 1 << 16:
        return
    digits = sum(len(word) for word in words if word.isdigit())
    rare = [word for word in words if word.isdigit() or re.search(rb"[^a-z]", word)]
    if len(rare) < len(words) or (digits and digits < 4):
        return
    places: list[int] = []
    start = re.search(rb"(?<![\w.])" + re.escape(words[0]) + rb"(?![\w])", one.data)
    at = start.start() if start else -1
    for word in words if start else ():
        match = re.compile(rb"(?<![\w.])" + re.escape(word) + rb"(?![\w])").search(one.data, at)
        if match is None or match.start() - at > MOST_STRETCH:
            return
        places.append(match.start())
        at = match.end()
    if not places or one.data[places[0] : at] == output.data.strip():
        return
    chances = len(_NUMBERS.findall(one.data)) ** min(len(words), 3)
    if digits and chances > MOST_CHANCE * 10**digits:
        return
    quoted = shlex.quote(one.path)
    reads = "; printf ' '; ".join(cut(quoted, at, len(word)) for at, word in zip(places, words, strict=True))
    yield Find(flaw=flaw, where=one.path, command=f"{{ {reads}; echo; }}", output=output)


def _packed(one: Shipped, output: Output) -> Iterator[Find]:
    """The answer inside an archive or a compressed file."""
    quoted = shlex.quote(one.path)
    for name, data, command in unpacked(one, quoted):
        for needle in needles_of(output):
            at = data.find(needle)
            if at >= 0:
                where = f"{one.path}:{name}" if name else one.path
                yield Find(
                    flaw="build-residue",
                    where=where,
                    command=f"{command} | {cut_pipe(at, len(needle))}",
                    output=output,
                )
                break


def _flaw_of(path: str) -> str:
    lowered = path.lower()
    if "/.git/" in lowered:
        return "future-history"
    if (
        lowered.endswith((".pyc", ".orig", ".rej", ".bak", ".swp", ".log", "~", ".o"))
        or "__pycache__" in lowered
        or "/build/" in lowered
    ):
        return "build-residue"
    if re.search(r"/tests?/|/test_|_test\.", lowered):
        return "tests-in-view"
    return "answer-in-view"


def in_variables(trial: Trial) -> Iterator[Find]:
    """The answer in variables of the image that the work does not use."""
    for name, value in trial.surface.env.items():
        for output in trial.work.outputs:
            answer = output.text.strip()
            fits = answer and (
                answer in value if len(answer) >= LEAST_CHARACTERS else answer == value and len(answer) >= LEAST_ALONE
            )
            if fits and not mentions(f"{trial.surface.instruction}\n{trial.surface.solution}", name):
                if answer == value:
                    command = f'printf "%s\\n" "${name}"'
                else:
                    at = value.encode().find(answer.encode())
                    command = f'printf %s "${name}" | {cut_pipe(at, len(answer.encode()))}'
                yield Find(flaw="answer-in-view", where=f"the variable {name}", command=command, output=output)
            elif len(answer) >= LEAST_CHARACTERS:
                for variant in (answer.encode(), answer.encode() + b"\n"):
                    if base64.b64encode(variant).decode() == value:
                        command = f'printf %s "${name}" | base64 -d'
                        yield Find(flaw="answer-in-view", where=f"the variable {name}", command=command, output=output)
