"""What is expected, or the tests themselves, in the agent's view: as it is, wrapped, in the image, in the prompt."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.agent_view import ViewFile
from flightschool.audit.terminal.static.case import Case, Secret, places_of, solution_files
from flightschool.audit.terminal.static.decoding import unwrapped
from flightschool.audit.terminal.static.expected import is_distinctive, shingles
from flightschool.audit.terminal.static.trust_map import LeakCandidate

__all__ = ["SUSPECT_NAMES", "detect"]

SUSPECT_NAMES: Final = (
    "answer",
    "expected",
    "solution",
    "gold",
    "truth",
    "reference",
    "oracle",
    "secret",
    "solve",
    "key",
    "hint",
)
MOST_BYTES: Final = 48 << 20
"""Bytes of the image that are searched."""
MOST_WORK: Final = 400 << 20
"""Bytes times texts looked for."""
LEAST_SHINGLES: Final = 6
_MEND: Final = "keep it out of the image: tests/ and solution/ reach only the grader and the oracle"


def detect(case: Case) -> Iterator[FlawFinding]:
    """Whole files, texts, variables, the instruction."""
    yield from _copies(case)
    yield from _texts(case)
    yield from _variables(case)
    yield from _prompt(case)
    yield from _other_steps(case)


# ------------------------------------------------------------------------------------------------ whole files


def _copies(case: Case) -> Iterator[FlawFinding]:
    """Tests and solutions that are in the image as files, unchanged or nearly so."""
    own: list[tuple[str, str, str]] = []
    for place, source in places_of(case).items():
        if source in case.tests.texts or source.endswith((".json", ".csv", ".txt", ".yaml", ".xml")):
            own.append((source, "tests-in-view" if source in case.tests.texts else "answer-in-view", place))
    own += [(source, "answer-in-view", "") for source in solution_files(case)]
    if not own or not case.view.files:
        return
    digests = {_digest(case, source): (source, slug) for source, slug, _ in own if _size(case, source) > 24}
    known = {source: shingles(case.folder.text(source)) for source, _, _ in own if _size(case, source) < 200_000}
    known = {source: found for source, found in known.items() if len(found) >= LEAST_SHINGLES}
    for file in case.view.readable():
        if file.source and (exact := digests.get(_digest(case, file.source))):
            yield _copied(case, file, *exact, share=1.0)
            continue
        data = case.view.content(file)
        if not known or b"\0" in data[:1024] or len(data) > 400_000:
            continue
        here = shingles(data.decode(errors="replace"))
        for source, slug, _ in own:
            wanted = known.get(source)
            if (
                wanted
                and here
                and (share := len(wanted & here) / len(wanted)) >= (0.9 if slug == "answer-in-view" else 0.6)
            ):
                if not (slug == "answer-in-view" and _is_rewritten(case, file)):
                    yield _copied(case, file, source, slug, share=share)
                break


def _digest(case: Case, source: str) -> bytes:
    try:
        return case.folder.contents.file_digest(source)
    except OSError:
        return source.encode()


def _size(case: Case, source: str) -> int:
    entry = case.folder.contents.entries.get(source)
    return entry.size if entry is not None else 0


def _is_rewritten(case: Case, file: ViewFile) -> bool:
    """Whether the reference writes that very file: then what is there is what is to be mended."""
    return file.path in case.solution_text or posixpath.basename(file.path) in case.solution_text


def _copied(case: Case, file: ViewFile, source: str, slug: str, *, share: float) -> FlawFinding:
    text = case.view.content(file)[:2000].decode(errors="replace")
    case.leaks.append(LeakCandidate(path=file.path, text=text, whole_file=True))
    how = "is" if share == 1.0 else f"holds {share:.0%} of"
    return case.finding(
        slug, f"{file.path} {how} {source}, and the policy can read it", file.where, 0.9 if share > 0.8 else 0.7, _MEND
    )


# ------------------------------------------------------------------------------------------------ texts


def _texts(case: Case) -> Iterator[FlawFinding]:
    secrets = [s for s in case.secrets if _is_secret(case, s)]
    plain = [(secret, secret.text.encode()) for secret in secrets]
    wholes = {s.text.strip(): s for s in case.secrets if s.text.strip() and s.text.strip() not in case.instruction}
    if not plain and not wholes:
        return
    budget, work = MOST_BYTES, MOST_WORK
    for file in case.view.readable():
        data = case.view.content(file)
        budget -= len(data)
        work -= len(data) * (len(plain) + 1)
        if budget < 0 or work < 0:
            case.folder.note(file.path, "the image holds more than is searched for leaks")
            return
        if not data:
            continue
        for encoding, content in unwrapped(data):
            secret = _first(content, plain, wholes, encoding)
            if secret is not None and encoding and secret.text.strip().encode() in data:
                continue  # it stands there as it is, and was weighed so: digits stay the same when letters are rotated
            confidence = _confidence(case, file, content, secret, encoding) if secret is not None else 0.0
            if secret is not None and confidence >= 0.4:
                yield _leak(case, file, secret, encoding, confidence)
                break


def _is_secret(case: Case, secret: Secret) -> bool:
    return is_distinctive(secret.text) and secret.text.strip() not in case.instruction


def _first(
    content: bytes, plain: list[tuple[Secret, bytes]], wholes: dict[str, Secret], encoding: str
) -> Secret | None:
    stripped = content.strip()
    if len(stripped) < 100_000:
        text = stripped.decode(errors="replace")
        if (whole := wholes.get(text)) is not None and (len(text) >= 4 or encoding):
            return whole
        if len(stripped) < 4000:
            for line in text.splitlines():
                name, mark, value = line.partition("=" if "=" in line else ":")
                told = wholes.get(value.strip().strip("\"',"))
                if (
                    mark
                    and told is not None
                    and any(word in name.lower() for word in SUSPECT_NAMES[:6])
                    and len(value.strip()) >= 2
                ):
                    return told
    return next((secret for secret, needle in plain if needle in content), None)


def _confidence(case: Case, file: ViewFile, content: bytes, secret: Secret, encoding: str) -> float:
    name = posixpath.basename(file.path).lower()
    suspect = any(word in name for word in SUSPECT_NAMES) or name.endswith(
        (".orig", ".bak", ".old", ".rej", "~", ".swp")
    )
    whole = content.strip().decode(errors="replace") == secret.text.strip()
    spoken = case.instruction
    told = file.path in spoken or name in spoken.lower() or file.path in case.trust.input_paths
    used = file.path in case.solution_text or (len(name) > 3 and name in case.solution_text.lower())
    if encoding:
        return 0.85
    if told:
        return 0.5 if whole and secret.whole else 0.0
    if suspect or (whole and not used):
        return 0.85
    folder, workdir = posixpath.dirname(file.path), case.trust.workdir
    named = _names_folder(spoken, folder) or _names_folder(case.solution_text, folder)
    if used or _is_rewritten(case, file) or len(secret.text) < 10 or (named and folder not in ("/", workdir)):
        return 0.0
    return 0.6 if name.startswith(".") or not folder.startswith(workdir) else 0.5


def _names_folder(text: str, folder: str) -> bool:
    """Whether a text names a folder itself, rather than a file in it."""
    at = text.find(folder)
    while at >= 0:
        behind = text[at + len(folder) : at + len(folder) + 2]
        if not (behind[:1].isalnum() or (behind[:1] in ("/", "_", "-", ".") and behind[1:].isalnum())):
            return True
        at = text.find(folder, at + 1)
    return False


def _leak(case: Case, file: ViewFile, secret: Secret, encoding: str, confidence: float) -> FlawFinding:
    case.leaks.append(LeakCandidate(path=file.path, text=secret.text[:2000], output=secret.output, encoding=encoding))
    wrapped = f" ({encoding})" if encoding else ""
    residue = file.path.endswith((".pyc", ".orig", ".bak", ".rej", "~", ".swp")) or "__pycache__" in file.path
    return case.finding(
        "build-residue" if residue else "answer-in-view",
        f"{file.path} holds{wrapped} what {secret.where} expects, and the policy can read it",
        file.where,
        confidence,
        _MEND,
    )


def _variables(case: Case) -> Iterator[FlawFinding]:
    plan = case.folder.plan
    values = {**(plan.env if plan is not None else {}), **case.task.environment_env}
    wholes = {secret.text.strip(): secret for secret in case.secrets}
    for name, value in values.items():
        secret = wholes.get(value.strip())
        telling = any(word in name.lower() for word in SUSPECT_NAMES[:6])
        if secret is not None and value.strip() not in case.instruction and (is_distinctive(value) or telling):
            case.leaks.append(LeakCandidate(path=f"${name}", text=value[:2000], output=secret.output))
            yield case.finding(
                "answer-in-view",
                f"the variable {name} of the image holds what {secret.where} expects",
                case.task.dockerfile,
                0.8,
                _MEND,
            )


# ------------------------------------------------------------------------------------------------ prompt and steps

_EXAMPLE: Final = ("example", "e.g.", "such as", "sample", "format", "like ", "for instance")
_TELLING: Final = (
    "answer is",
    "answer:",
    "expected",
    "correct result",
    "solution",
    "hint",
    "should be",
    "result is",
    "will be",
)


def _prompt(case: Case) -> Iterator[FlawFinding]:
    """The instruction holds what is to be found out, rather than what is to be written."""
    spoken = case.instruction
    for secret in case.secrets:
        text = secret.text.strip()
        if len(text) < 4 or text not in spoken or text in case.solution_text:
            continue
        at = spoken.find(text)
        around = spoken[max(0, at - 80) : at + len(text)].lower()
        sentence = spoken[max(0, spoken.rfind("\n", 0, at)) : at + len(text)].lower()
        if any(word in sentence for word in _EXAMPLE) or not case.solution_text or not case.view.files:
            continue
        distinctive = is_distinctive(text) and "/" not in text
        number = sum(char.isdigit() for char in text) >= 4 and any(word in around for word in _TELLING)
        told = distinctive and (len(text) >= 16 or any(word in around for word in _TELLING))
        if number or told:
            case.leaks.append(LeakCandidate(path="", text=text[:2000], output=secret.output))
            yield case.finding(
                "answer-in-prompt",
                f"the instruction holds {text[:60]!r}, which {secret.where} expects",
                "instruction.md",
                0.6 if told else 0.4,
                "leave the result out of the instruction",
            )
            return


def _other_steps(case: Case) -> Iterator[FlawFinding]:
    """Tests of one step, or what they expect, in files that another step lays into the working directory."""
    folder = case.folder
    for other in case.task.steps:
        if not other.workdir_files:
            continue
        mine = other.name == case.stage.name
        for entry in folder.contents.below(other.workdir_files):
            if not entry.size or entry.size > 400_000:
                continue
            text = folder.text(entry.path)
            secret = next(
                (
                    s
                    for s in case.secrets
                    if is_distinctive(s.text) and s.text in text and s.text not in case.instruction
                ),
                None,
            )
            here = shingles(text)
            copied = next(
                (
                    source
                    for source in case.tests.texts
                    if len(wanted := shingles(folder.text(source))) >= LEAST_SHINGLES
                    and len(wanted & here) >= 0.6 * len(wanted)
                ),
                "",
            )
            if (secret is not None and not mine) or copied:
                yield case.finding(
                    "cross-step-leak" if not mine else "tests-in-view",
                    f"{entry.path}, laid out in step {other.name}, holds what grades step {case.stage.name}",
                    entry.path,
                    0.6,
                    _MEND,
                )
