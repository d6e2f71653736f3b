"""Forms of an answer that the instruction itself allows: signs, separators, zeros, dates, formats, with or without.

Each form is made only where the instruction names the choice; what it names as good must be taken.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from flightschool.audit.terminal.outputs import Output

__all__ = ["MORE_ALLOWED", "allowed_forms"]

_OPTION: Final = r"(?:with or without|optional(?:ly)?|may (?:have|carry|be followed by|include|be preceded by))"
_SEPARATORS: Final = re.compile(
    rf"{_OPTION}[^.;\n]{{0,30}}(?:thousands?|grouping|separator|comma)"
    r"|(?:thousands?|grouping) separators? (?:are|is|may be) (?:optional|allowed|fine|accepted)",
    re.I,
)
_PERCENT: Final = re.compile(rf"{_OPTION}[^.;\n]{{0,30}}(?:percent|%)|(?:percent|%)[^.;\n]{{0,12}}is optional", re.I)
_CURRENCY: Final = re.compile(
    rf"{_OPTION}[^.;\n]{{0,30}}(?:currency|dollar|euro|pound|[$€£])|currency[^.;\n]{{0,15}}is optional", re.I
)
_ZEROS: Final = re.compile(rf"{_OPTION}[^.;\n]{{0,20}}leading zero|leading zeros? (?:are|is) optional", re.I)
_QUOTES: Final = re.compile(rf"{_OPTION}[^.;\n]{{0,20}}quot", re.I)
_PREFIX: Final = re.compile(rf"{_OPTION}[^.;\n]{{0,20}}(?:prefix )?[`'\"](\S{{1,12}})[`'\"]", re.I)
MORE_ALLOWED: Final = re.compile(
    r"(?:other|further|more|additional|extra) (?:lines?|text|content|fields?|keys|entries|files|output)[^.;\n]{0,20}"
    r"(?:free|allowed|fine|harmless|welcome|permitted|ignored|do(?:es)? not matter|don't matter"
    r"|no matter|optional|up to you)"
    r"|may (?:hold|contain|have|say|include) (?:\w+ ){0,2}?(?:anything|other|further|more|else|whatever)"
    r"|anything else (?:is|may|can)|(?:rest|remainder) (?:is|of the \w+ is) (?:free|ignored|up to you|yours)",
    re.I,
)
"""Words that allow more in a result than what is asked for."""
_ALONE_OR: Final = re.compile(
    r"(?:alone|bare|plain|by itself|on its own)\b[^.;\n]{0,30}?\bor (?:as "
    r"|with )?[`'\"]([A-Za-z][\w -]{0,14}[:=]?) ?(?:…|\.\.\.|<\w+>|[A-Z]\b)"
    r"[`'\"]",
    re.I,
)
_FORMATS: Final = re.compile(
    r"\b(json|yaml|yml|csv|tsv)\b(?: \w+)?(?:,? or |/)(?:as |in |a )?(?:a )?\b(json|yaml|yml|csv|tsv)\b", re.I
)
_WRITES: Final = re.compile(r"writ|sav|output|answer|submit|produc|stor|result|report", re.I)
_DATES: Final = {"YYYY-MM-DD": "{0}-{1}-{2}", "DD/MM/YYYY": "{2}/{1}/{0}", "DD.MM.YYYY": "{2}.{1}.{0}",
                 "MM/DD/YYYY": "{1}/{2}/{0}", "YYYY/MM/DD": "{0}/{1}/{2}", "YYYYMMDD": "{0}{1}{2}"}  # fmt: skip
_A_PATH: Final = re.compile(r"(?<![\w.<])/?(?:[\w+-]+/)+[\w.+-]+|(?<![\w./<])[\w-]+\.[a-z]{2,5}\b")
_NUMBER: Final = re.compile(r"(?<![\w.,])\d{4,}(?![\w,])")
_GROUPED: Final = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")
_ANY_NUMBER: Final = re.compile(r"(?<![\w.,-])-?\d+(?:[.,]\d+)*(?![\w])")


def allowed_forms(output: Output, instruction: str) -> Iterator[tuple[str, str]]:
    """Text and what was changed, for an output that is new."""
    if output.before is not None or output.kind in ("code", "binary"):
        return
    text = output.text
    if output.kind in ("text", "table") and text.strip() and _may_say_more(output.path, instruction):
        ended = text if text.endswith("\n") else text + "\n"
        yield ended + "done\n", "with a further line at its end"
        yield "begun\n" + ended, "with a further line at its beginning"
    if output.kind == "text":
        yield from _of_numbers(text, instruction)
        yield from _of_words(text, instruction)
    if output.kind in ("text", "table"):
        yield from _of_dates(text, instruction)
    yield from _of_formats(output, instruction)


def _may_say_more(path: str, instruction: str) -> bool:
    """Whether further lines are allowed in this very file: the words that allow them follow its name."""
    match = MORE_ALLOWED.search(instruction)
    if match is None or re.search(r"\b(?:fields?|keys|entries|files)\b", match.group(), re.I):
        return False
    named = _A_PATH.findall(instruction[: match.end()])
    last: str = named[-1] if named else ""
    return last.rstrip(".").endswith(posixpath.basename(path))


def _of_numbers(text: str, instruction: str) -> Iterator[tuple[str, str]]:
    if _SEPARATORS.search(instruction):
        if _GROUPED.search(text):
            yield _GROUPED.sub(lambda m: m.group().replace(",", ""), text), "numbers without separators"
        elif _NUMBER.search(text):
            yield _NUMBER.sub(lambda m: f"{int(m.group()):,}", text), "numbers with separators"
    if _PERCENT.search(instruction):
        other = re.sub(r"\s*%", "", text) if "%" in text else _ANY_NUMBER.sub(lambda m: m.group() + "%", text)
        yield other, "the percent sign the other way"
    if _CURRENCY.search(instruction):
        sign = next((mark for mark in "$€£" if mark in instruction), "$")
        marked = any(mark in text for mark in "$€£")
        other = re.sub(r"[$€£]\s*", "", text) if marked else _ANY_NUMBER.sub(lambda m: sign + m.group(), text)
        yield other, "the currency sign the other way"
    if _ZEROS.search(instruction):
        bare = re.sub(r"(?<![\w.])0+(?=\d)", "", text)
        yield bare if bare != text else re.sub(r"(?<![\w.])(?=\d)", "0", text), "leading zeros the other way"


def _of_words(text: str, instruction: str) -> Iterator[tuple[str, str]]:
    answer = text.strip()
    if "\n" in answer or not answer:
        return
    if _QUOTES.search(instruction):
        yield (answer[1:-1] if answer[0] in "\"'" else f'"{answer}"') + "\n", "quotes the other way"
    for match in _ALONE_OR.finditer(instruction):
        word = match.group(1)
        bare = re.sub(rf"^{re.escape(word)}\s*", "", answer, flags=re.I)
        if bare != answer or word[-1] in ":=" or " " not in answer:
            yield (bare if bare != answer else f"{word} {answer}") + "\n", f"{word!r} in front the other way"
    for match in _PREFIX.finditer(instruction):
        word = match.group(1)
        bare = answer.removeprefix(word).removesuffix(word)
        yield (bare if bare != answer else word + answer) + "\n", f"{word!r} in front the other way"


def _of_dates(text: str, instruction: str) -> Iterator[tuple[str, str]]:
    named = [name for name in _DATES if name in instruction and f" or {name}" in instruction.replace("`", "")]
    for name in named:
        form = partial(_dated, _DATES[name])
        yield re.sub(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)", form, text), f"dates as {name}"


def _dated(form: str, found: re.Match[str]) -> str:
    return form.format(*found.groups())


def _of_formats(output: Output, instruction: str) -> Iterator[tuple[str, str]]:
    for match in _FORMATS.finditer(instruction):
        begin = max(instruction.rfind(mark, 0, match.start()) for mark in (". ", "\n", ";"))
        if not _WRITES.search(instruction, begin + 1, match.start()):
            continue  # it may be said of an input
        names = {name.lower().replace("yml", "yaml") for name in match.groups()}
        own = _own_format(output)
        for name in names - {own} if own in names else ():
            other = _converted(output.text, own, name)
            if other:
                yield other, f"as {name.upper()}"


def _own_format(output: Output) -> str:
    if output.kind == "table":
        return "tsv" if "\t" in output.text else "csv"
    return output.kind


def _converted(text: str, own: str, name: str) -> str:
    if own == "json" and name == "yaml":
        value = json.loads(text)
        flat = isinstance(value, dict) and all(isinstance(one, str | int | float) for one in value.values())
        return "".join(f"{key}: {json.dumps(one)}\n" for key, one in value.items()) if flat else ""
    if {own, name} == {"csv", "tsv"}:
        told = io.StringIO()
        rows = csv.reader(io.StringIO(text), delimiter="\t" if own == "tsv" else ",")
        csv.writer(told, delimiter="\t" if name == "tsv" else ",", lineterminator="\n").writerows(rows)
        return told.getvalue()
    if own == "json" and name in ("csv", "tsv"):
        return _table_of(json.loads(text), "\t" if name == "tsv" else ",")
    return ""


def _table_of(value: Any, mark: str) -> str:
    """Rows of a list of flat objects with the same keys."""
    rows = value if isinstance(value, list) else []
    if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return ""
    told = io.StringIO()
    table = csv.writer(told, delimiter=mark, lineterminator="\n")
    table.writerow(rows[0])
    table.writerows(list(row.values()) for row in rows)
    return told.getvalue()
