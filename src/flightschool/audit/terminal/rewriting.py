"""The same work in another form: changes of an output that no reader of the instruction would call wrong.

A refused rewrite bars its task when the format itself says that the forms are the same (JSON's key order and spaces, a
number's last digits beyond what a double holds, the newline that ``echo`` adds and ``printf`` does not) or when the
instruction says so (``in any order``). All other rewrites are matters of taste and only warn: row order that nobody
spoke of, carriage returns, spaces at line ends, quoted CSV fields. Where the instruction speaks of bytes, of an exact
form or of digits, rewrites of form warn at most.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from flightschool.audit.terminal.allowing import allowed_forms
from flightschool.audit.terminal.alternatives import alternatives_of
from flightschool.audit.terminal.demanding import demands_of
from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.notations import notations_of
from flightschool.audit.terminal.ordering import ANY_ORDER, alphabetical, asks_for_order, is_free
from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.path_forms import path_forms
from flightschool.audit.terminal.recomputing import truths_of

__all__ = ["DIGITS", "Rewrite", "rewrites_of"]

_EXACT: Final = re.compile(
    r"exact(?:ly)? (?:the |this |these |as )|byte|verbatim|identical|trailing|newline"
    r"|no (?:extra )?(?:white ?space|spaces)"
    r"|indent|compact|minif|pretty|one line|single line|sorted keys|sort_keys|canonical|\bdiff\b"
    r"|\b(?:its|whose|the (?:file|output|result)(?:'s)?) (?:checksum|sha-?\d+|md5|digest)\b"
    r"|(?:checksum|sha-?\d+|md5|digest) (?:will|must|has to|is compared|of (?:the|your) (?:output|result))",
    re.I,
)
"""A digest that is the subject of the task says nothing of the form; one that the result must have does."""
DIGITS: Final = re.compile(r"digit|decimal|round|precis|significant|format|places", re.I)
_ANY_CASE: Final = re.compile(
    r"case[- ]insensitiv|case does(?: not|n't) matter|upper ?-?case or lower|lower ?-?case or upper"
    r"|(?:any|either) case",
    re.I,
)
_ONLY: Final = re.compile(
    r"\bonly\b|nothing else|no other|no extra|no additional|clean|must not (?:contain|leave)", re.I
)
_RANGE: Final = re.compile(
    r"(?:any|an?|some)\s+(?:whole\s+|integer\s+|valid\s+)?(?:number|integer|value)\s+(?:between|from)\s+(-?\d+)\s+(?:and|to)\s+(-?\d+)",
    re.I,
)
_ONE_OF: Final = re.compile(
    r"(?:any|either|one) (?:one )?of:?\s+((?:[`'\"]?[\w.-]+[`'\"]?(?:,\s*(?:or\s+)?|\s+or\s+))+[`'\"]?[\w.-]+[`'\"]?)",
    re.I,
)
_LONG_FLOAT: Final = re.compile(r"(?<![\w.])-?\d+\.\d{9,}(?![\w.])")
_SHORT_FLOAT: Final = re.compile(r"(?<![\w.])-?\d+\.\d{1,8}(?![\w.])")
NOTE: Final = b"a note that nobody asked for\n"


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Right work in another form."""

    path: str
    data: bytes
    what: str
    flaw: str
    bars: bool
    extra: bool = False
    """Whether it is a file beside the outputs."""
    mode: int | None = None


def rewrites_of(output: Output, instruction: str, view: InView | None = None) -> list[Rewrite]:
    """Forms of one output that mean the same, or answer as well, those that bar first.

    Args:
        output: of the reference.
        instruction: of all steps.
        view: the instruction and the inputs that the policy sees; None: there are no inputs.
    """
    view = view or InView(instruction=instruction)
    found: list[Rewrite] = list(_by_meaning(output, view))
    if output.kind != "binary":
        found += _newlines(output, instruction)
    if output.kind in ("json", "jsonl"):
        found += _json(output, view)
    elif output.kind in ("table", "text"):
        found += _text(output, view)
    elif output.kind == "code" and output.language in ("python", "shell"):
        data = output.data + b"" if output.data.endswith(b"\n") else output.data + b"\n"
        exact = _EXACT.search(instruction) is not None
        found.append(_rewrite(output, data + b"# end\n", "a comment at its end", "over-strict-text", not exact))
    for text, what in allowed_forms(output, instruction):
        found.append(_rewrite(output, text, f"{what}, which the instruction allows too", "over-strict-text", True))
    for text, what, allowed in path_forms(output, view):
        found.append(_rewrite(output, text, what, "over-strict-text", allowed))
    found.append(_beside(output, instruction))
    if output.before is None and output.kind != "code":
        found.append(
            _rewrite(
                output, output.data, "readable by all and writable by its group", "over-strict-text", False, mode=0o664
            )
        )
    kept = {
        (one.path, one.data, one.mode): one
        for one in reversed(found)
        if one.extra or one.mode or one.data != output.data
    }
    return sorted(kept.values(), key=lambda one: not one.bars)


def _by_meaning(output: Output, view: InView) -> Iterator[Rewrite]:
    """What only the inputs and the instruction's words show to be right."""
    for demand in demands_of(output, view):
        yield _rewrite(output, demand.data, demand.what, demand.flaw, True, mode=demand.mode)
    for text, what in truths_of(output, view):
        yield _rewrite(output, text, f"with {what}", "wrong-truth", True)
    for text, what in alternatives_of(output, view):
        yield _rewrite(output, text, what, "one-of-many", True)
    exact = _EXACT.search(view.instruction) is not None
    for text, what in notations_of(output, view):
        yield _rewrite(output, text, what, "over-strict-text", not exact)


def _rewrite(output: Output, data: bytes | str, what: str, flaw: str, bars: bool, mode: int | None = None) -> Rewrite:
    content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return Rewrite(path=output.path, data=content, what=f"{output.path}: {what}", flaw=flaw, bars=bars, mode=mode)


def _beside(output: Output, instruction: str) -> Rewrite:
    """A harmless file in the folder of an output. Where the folder is the answer itself, nobody promised it room."""
    folder = posixpath.dirname(output.path)
    path = posixpath.join(folder, "notes.tmp")
    whole = re.search(rf"(?<![\w/]){re.escape(folder)}/?(?![\w/-]|\.\w)", instruction) is not None
    bars = not whole and _ONLY.search(instruction) is None
    what = f"a file of notes beside {output.path}"
    return Rewrite(path=path, data=NOTE, what=what, flaw="extra-files-refused", bars=bars, extra=True)


def _newlines(output: Output, instruction: str) -> Iterator[Rewrite]:
    text, exact = output.text, _EXACT.search(instruction) is not None
    single = len(text.strip().splitlines()) <= 1 or output.kind == "json"
    if output.kind == "code":
        return
    if text.endswith("\n"):
        yield _rewrite(output, text[:-1], "without the newline at its end", "strict-whitespace", single and not exact)
    else:
        yield _rewrite(output, text + "\n", "with a newline at its end", "strict-whitespace", not exact)
    if output.before is None:
        yield _rewrite(output, text.rstrip("\n") + "\n\n", "with an empty line at its end", "strict-whitespace", False)
        if output.kind != "jsonl":
            crlf = text.replace("\r\n", "\n").replace("\n", "\r\n")
            yield _rewrite(output, crlf, "with carriage returns at line ends", "strict-whitespace", False)


def _json(output: Output, view: InView) -> Iterator[Rewrite]:
    instruction = view.instruction
    exact = _EXACT.search(instruction) is not None
    lines = output.kind == "jsonl"
    texts = [line for line in output.text.splitlines() if line.strip()] if lines else [output.text]
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        return
    end = "\n" if output.text.endswith("\n") else ""

    def written(changed: list[Any], **form: Any) -> str:
        return "\n".join(json.dumps(one, **{"ensure_ascii": False, **form}) for one in changed) + end

    bars = not exact
    yield _rewrite(
        output,
        written([_turned(v) for v in values], indent=None if lines else 2),
        "keys in another order",
        "order-sensitive",
        bars,
    )
    yield _rewrite(output, written(values, separators=(",", ":")), "without spaces", "over-strict-text", bars)
    if not lines:
        yield _rewrite(output, written(values, indent=4), "indented by four", "over-strict-text", bars)
    if any(ord(c) > 127 for c in output.text):
        yield _rewrite(
            output, written(values, ensure_ascii=True), "with letters written as \\u escapes", "over-strict-text", bars
        )
    raw = output.text
    if _SHORT_FLOAT.search(raw) and output.before is None:
        longer = _SHORT_FLOAT.sub(lambda match: match.group() + "0", raw)
        yield _rewrite(output, longer, "decimal numbers with one more 0", "over-strict-text", bars)
    if _LONG_FLOAT.search(raw):
        shorter = _LONG_FLOAT.sub(lambda match: f"{float(match.group()):.12g}", raw)
        yield _rewrite(
            output, shorter, "long decimal numbers to 12 digits", "float-equality", not DIGITS.search(instruction)
        )
    lists = [v for v in values if _longest(v) > 1]
    if lists or (lines and len(values) > 1):
        any_order = ANY_ORDER.search(instruction) is not None
        if any_order or not asks_for_order(instruction):
            changed = values[::-1] if lines else [_shuffled(v) for v in values]
            yield _rewrite(output, written(changed), "items in another order", "order-sensitive", any_order)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(item) for key, item in reversed(value.items())}
    return [_turned(item) for item in value] if isinstance(value, list) else value


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(item) for key, item in value.items()}
    return [_shuffled(item) for item in reversed(value)] if isinstance(value, list) else value


def _longest(value: Any) -> int:
    if isinstance(value, dict):
        return max([_longest(item) for item in value.values()], default=0)
    return max([len(value), *(_longest(item) for item in value)], default=0) if isinstance(value, list) else 0


def _text(output: Output, view: InView) -> Iterator[Rewrite]:
    text, instruction = output.text, view.instruction
    lines = text.splitlines()
    if _LONG_FLOAT.search(text):
        shorter = _LONG_FLOAT.sub(lambda match: f"{float(match.group()):.12g}", text)
        bars = not DIGITS.search(instruction) and not _EXACT.search(instruction)
        yield _rewrite(output, shorter, "long decimal numbers to 12 digits", "float-equality", bars)
    if _SHORT_FLOAT.search(text) and output.before is None and not DIGITS.search(instruction):
        longer = _SHORT_FLOAT.sub(lambda match: match.group() + "0", text)
        yield _rewrite(output, longer, "decimal numbers with one more 0", "over-strict-text", False)
    filled = [line for line in lines if line.strip()]
    yield from _other_orders(output, filled, view)
    if _ANY_CASE.search(instruction):
        other = text.upper() if text != text.upper() else text.lower()
        yield _rewrite(output, other, "letters in the other case", "over-strict-text", True)
    if output.kind == "table" and "," in text and output.before is None:
        quoted = io.StringIO()
        csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(csv.reader(lines))
        yield _rewrite(output, quoted.getvalue(), "every field quoted", "over-strict-text", False)
    if output.before is None and len(filled) == 1:
        yield _rewrite(output, f"{text.strip()}  \n", "spaces at its end", "strict-whitespace", False)
        yield from _others(output, instruction)


def _other_orders(output: Output, filled: list[str], view: InView) -> Iterator[Rewrite]:
    """Rows or items turned round, where nobody asked for an order; names sorted as people sort them."""
    instruction = view.instruction
    any_order = ANY_ORDER.search(instruction) is not None
    if len(filled) > 1 and output.before is None:
        head = 1 if output.kind == "table" and not any(c.isdigit() for c in filled[0]) and len(filled) > 2 else 0
        if any_order or not asks_for_order(instruction):
            turned = "\n".join(filled[:head] + filled[head:][::-1]) + "\n"
            bars = any_order or is_free(filled[head:], view)
            yield _rewrite(output, turned, "rows in another order", "order-sensitive", bars)
        by_letter = alphabetical(filled[head:], instruction)
        if by_letter:
            what = "names in the alphabet's order whatever their case"
            yield _rewrite(output, "\n".join(filled[:head] + by_letter) + "\n", what, "locale-dependence", True)
    if len(filled) == 1 and any_order and len(filled[0].split(",")) > 1:
        turned = ",".join(part.strip() for part in reversed(filled[0].split(","))) + "\n"
        yield _rewrite(output, turned, "items in another order", "order-sensitive", True)


def _others(output: Output, instruction: str) -> Iterator[Rewrite]:
    """Answers that the instruction itself calls as good: another number of a range, another word of a list."""
    answer = output.text.strip()
    for match in _RANGE.finditer(instruction):
        low, high = int(match.group(1)), int(match.group(2))
        if re.fullmatch(r"-?\d+", answer) and low <= int(answer) <= high and high > low:
            other = low if int(answer) != low else high
            yield _rewrite(output, f"{other}\n", f"{other}, which the instruction allows too", "one-of-many", True)
    for match in _ONE_OF.finditer(instruction):
        words = re.findall(r"[\w.-]+", match.group(1))
        words = [word.rstrip(".") for word in words if word.lower() != "or"]
        if answer in words and len(words) > 1:
            other_word = next(word for word in words if word != answer)
            yield _rewrite(
                output, f"{other_word}\n", f"{other_word!r}, which the instruction allows too", "one-of-many", True
            )
