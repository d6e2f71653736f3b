"""Wrong variants of right work: one file of the reference's end state, changed so that it says something else."""

from __future__ import annotations

import ast
import copy
import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from flightschool.audit.terminal.allowing import MORE_ALLOWED
from flightschool.audit.terminal.outputs import Output

__all__ = ["Mutant", "mutants_of"]

T = TypeVar("T")

_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_-]{2,}")
_TOLERANT: Final = re.compile(
    r"toleran|approx|about\b|roughly|within\b|±|\+/-|nearest|at least|at most|or more|or less|between\b|up to\b|any\b",
    re.I,
)
PROSE_WORDS: Final = 6
"""A line of so many words is prose: a word more or less in it may leave it right."""
JUNK_LINE: Final = "unrelated 987654321"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A wrong variant of one output."""

    path: str
    data: bytes | None
    """None: the file is not there (or as it was in the image)."""
    what: str
    flaw: str = "mutant-passes"
    bars: bool = True
    """Whether its passing bars the task; a variant that may be right work after all only warns."""


def mutants_of(output: Output, instruction: str, *, is_run: bool = False) -> list[Mutant]:
    """Wrong variants of an output, the most telling first.

    Args:
        output: of the reference.
        instruction: of all steps.
        is_run: whether it is a program in a small language (for sed, jq, awk, SQL): a line more or less, or another
            number, may change nothing that it does, so only an empty one is surely wrong.
    """
    tolerant = _TOLERANT.search(instruction) is not None
    if output.kind == "code":
        found = _code(output)
    elif output.before is not None:
        found = _edited(output, tolerant)
    elif output.kind == "binary":
        found = _binary(output)
    elif output.kind in ("json", "jsonl"):
        found = _json(output, tolerant, instruction)
    else:
        found = _text(output, tolerant, more=MORE_ALLOWED.search(instruction) is not None)
    kept: dict[bytes, Mutant] = {}
    for one in found:
        data = one.data if one.data is not None else b"\0none"
        if data != output.data and (output.stable or one.flaw in ("presence-only", "empty-criteria")):
            kept.setdefault(data, replace(one, bars=False) if is_run and data else one)
    return list(kept.values())


def _mutant(output: Output, text: str | bytes, what: str, flaw: str = "mutant-passes", *, bars: bool = True) -> Mutant:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return Mutant(path=output.path, data=data, what=f"{output.path}: {what}", flaw=flaw, bars=bars)


def _other(number: str, factor: float = 1.5, shift: int = 1) -> str:
    """Another number in the same format."""
    digits = len(number.partition(".")[2])
    value = float(number) * factor + shift
    return (
        f"{value:.{digits}f}" if digits else str(int(number) * 3 // 2 + shift if factor != 1 else int(number) + shift)
    )


def _near(number: str) -> str:
    """A number near by: the next integer, or 5 % more."""
    digits = len(number.partition(".")[2])
    return f"{float(number) * 1.05 + 2 * 10**-digits:.{digits}f}" if digits else str(int(number) + 1)


# ------------------------------------------------------------------------------------------------ text


def _text(output: Output, tolerant: bool, *, more: bool = False) -> Iterator[Mutant]:
    """``more``: whether the instruction allows further lines, so that a line of junk is no fault."""
    text = output.text
    lines = text.splitlines(keepends=True)
    filled = [place for place, line in enumerate(lines) if line.strip()]
    prose = len(filled) == 1 and len(text.split()) >= PROSE_WORDS and output.kind == "text"
    rows = output.kind == "table" or (len(filled) == 1 and not prose) or _is_even(lines)
    yield _mutant(output, b"", "emptied", "presence-only")
    numbers = [match for match in _NUMBER.finditer(text) if abs(float(match.group())) < 1e15]
    for match in _spread(numbers, 3):
        yield _mutant(output, _replaced(text, match, _other(match.group())), f"{match.group()} became another number")
    for match in _spread(numbers, 2):
        near = _near(match.group())
        what = f"{match.group()} became {near}"
        yield _mutant(output, _replaced(text, match, near), what, "loose-tolerance", bars=not tolerant)
    head = len(lines[0]) if output.kind == "table" and not _NUMBER.search(lines[0]) else 0
    words = [match for match in _WORD.finditer(text) if match.start() >= head]
    only_words = rows and (output.kind == "table" or not numbers)  # beside a number a word may be decoration
    for match in _spread(words, 3 if rows else 1):
        word = match.group()[::-1] + "q"
        yield _mutant(output, _replaced(text, match, word), f"{match.group()!r} became {word!r}", bars=only_words)
    for place in _spread(filled if len(filled) > 1 else [], 3):
        rest = "".join(line for at, line in enumerate(lines) if at != place)
        yield _mutant(output, rest, f"line {place + 1} dropped", bars=rows)
    if output.kind == "table":
        yield from _swapped(output, lines, filled)
    if len(filled) == 1 and len(text.strip()) > 3:
        half = text.strip()[: len(text.strip()) // 2]
        if not _is_near(half, text):
            yield _mutant(output, half + "\n", "cut to its first half", "superset-answer", bars=not prose)
        yield _mutant(output, text.strip() * 2 + "\n", "said twice in one word", "superset-answer", bars=not prose)
    if len(filled) > 3:
        yield _mutant(output, "".join(lines[: len(lines) // 2]), "cut to its first half")
    junk = JUNK_LINE if output.kind != "table" else _junk_row(lines[filled[-1]])
    end = "" if text.endswith("\n") else "\n"
    bars = rows and not more
    yield _mutant(output, f"{text}{end}{junk}\n", "a line of junk added", "superset-answer", bars=bars)
    bars = bars and not tolerant
    yield _mutant(output, f"{junk}\n{text}", "a line of junk put in front", "superset-answer", bars=bars)


def _is_near(half: str, text: str) -> bool:
    """Whether half of a number's digits is the number still, to a thousandth: fewer digits, and no other answer."""
    try:
        short, whole = float(half), float(text)
    except ValueError:
        return False
    return abs(short - whole) <= 1e-3 * abs(whole)


def _is_even(lines: list[str]) -> bool:
    """Whether all lines have as many fields: rows of data rather than prose."""
    counts = {len(line.split()) for line in lines if line.strip()}
    return len(counts) == 1 and max(counts) <= 3


def _junk_row(line: str) -> str:
    return re.sub(r"[A-Za-z]+", "zzz", re.sub(r"\d", "9", line.rstrip("\n")))


def _swapped(output: Output, lines: list[str], filled: list[int]) -> Iterator[Mutant]:
    mark = next((mark for mark in (",", "\t", ";", "|") if mark in lines[filled[0]]), "")
    if not mark:  # its first line ends at a character that the eye does not see
        return
    for first, second in pairwise(filled):
        left, right = lines[first].rstrip("\n").split(mark), lines[second].rstrip("\n").split(mark)
        if first == 0 and not _NUMBER.search(lines[0]):
            continue  # a head
        for column in reversed(range(min(len(left), len(right)))):
            if left[column] != right[column] and len(left) > 1:
                left[column], right[column] = right[column], left[column]
                changed = [*lines]
                changed[first], changed[second] = mark.join(left) + "\n", mark.join(right) + "\n"
                yield _mutant(output, "".join(changed), f"a field of rows {first + 1} and {second + 1} swapped")
                return


# ------------------------------------------------------------------------------------------------ JSON


def _json(output: Output, tolerant: bool, instruction: str) -> Iterator[Mutant]:
    lines = output.kind == "jsonl"
    try:
        texts = [line for line in output.text.splitlines() if line.strip()] if lines else [output.text]
        value: Any = [json.loads(text) for text in texts] if lines else json.loads(output.text)
    except ValueError:
        return

    def written(changed: Any) -> str:
        return "".join(json.dumps(one) + "\n" for one in changed) if lines else json.dumps(changed, indent=2) + "\n"

    empty: Any = [] if isinstance(value, list) else {}
    yield _mutant(output, "" if lines else written(empty), "emptied", "presence-only")
    yield _mutant(output, written(_mapped(value)), "every value replaced by junk of its type", "presence-only")
    asked = _asked_for(value, instruction)
    places = list(_leaves(value, ()))
    for place in _spread(places, 6):
        old = _at(value, place)
        what = f"{_dotted(place)} became another value"
        yield _mutant(output, written(_with(value, place, _junk(old))), what, bars=asked(place))
        if isinstance(old, int | float) and not isinstance(old, bool):
            near = old + 1 if isinstance(old, int) else old * 1.05 + 0.01
            what = f"{_dotted(place)} became {near:g} instead of {old:g}"
            bars = asked(place) and not tolerant
            yield _mutant(output, written(_with(value, place, near)), what, "loose-tolerance", bars=bars)
    for place in _spread([one for one in _inner(value, ()) if _at(value, one[:-1])], 3):
        yield _mutant(output, written(_without(value, place)), f"{_dotted(place)} dropped", bars=asked(place))
    for place in _spread([one for one in _lists(value, ()) if _at(value, one)], 2):
        items = _at(value, place)
        longer = _with(value, place, [*items, _mapped(items[-1])]) if place else [*items, _mapped(items[-1])]
        yield _mutant(
            output, written(longer), f"a junk item added to {_dotted(place)}", "superset-answer", bars=not tolerant
        )


def _asked_for(value: Any, instruction: str) -> Callable[[tuple[Any, ...]], bool]:
    """Whether the instruction asks for a place: keys that it does not name may be the reference's own addition.

    Where it names no key at all the keys are data, and every place counts.
    """
    keys = {key for place in _inner(value, ()) for key in place if isinstance(key, str)}
    named = {key for key in keys if re.search(rf"(?<![\w]){re.escape(key)}(?![\w])", instruction)}

    def asked(place: tuple[Any, ...]) -> bool:
        return not named or all(key in named for key in place if isinstance(key, str))

    return asked


def _junk(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 3 // 2 + 17
    if isinstance(value, float):
        return value * 1.5 + 17.25
    return value[::-1] + "q" if isinstance(value, str) else 0


def _mapped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(item) for key, item in value.items()}
    return [_mapped(item) for item in value] if isinstance(value, list) else _junk(value)


def _leaves(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _leaves(value[key], (*place, key))
    else:
        yield place


def _inner(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*place, key)
            yield from _inner(value[key], (*place, key))


def _lists(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, list):
        yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _lists(value[key], (*place, key))


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = copy.deepcopy(value)
    _at(changed, place[:-1])[place[-1]] = new
    return changed


def _without(value: Any, place: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    del _at(changed, place[:-1])[place[-1]]
    return changed


def _dotted(place: tuple[Any, ...]) -> str:
    return ".".join(str(key) for key in place) or "the whole"


# ------------------------------------------------------------------------------------------------ other files


def _binary(output: Output) -> Iterator[Mutant]:
    data = output.data
    yield _mutant(output, b"", "emptied", "presence-only")
    yield _mutant(output, data[: len(data) // 2], "cut to its first half", "presence-only")
    yield _mutant(output, bytes(byte ^ 0x5A for byte in data), "every byte changed", "presence-only")
    if len(data) > 16:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 0x01]) + data[middle + 1 :]
        yield _mutant(output, flipped, "one bit in the middle changed", bars=False)


def _edited(output: Output, tolerant: bool) -> Iterator[Mutant]:
    """A file that the image had: only what the reference changed of it is mutated."""
    before, after = (output.before or b"").decode(errors="replace"), output.text
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    blocks = [
        block for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if block[0] != "equal"
    ]
    for tag, i1, i2, j1, j2 in _spread(blocks if len(blocks) > 1 else [], 4):
        reverted = new[:j1] + old[i1:i2] + new[j2:]
        yield _mutant(
            output, "".join(reverted), f"the change at line {j1 + 1} ({tag}) left out", "empty-criteria", bars=False
        )
    for _, _, _, j1, j2 in _spread([block for block in blocks if block[3] < block[4]], 3):
        piece = "".join(new[j1:j2])
        numbers = list(_NUMBER.finditer(piece))
        for match in _spread(numbers, 2):
            changed = _replaced(piece, match, _other(match.group()))
            whole = "".join(new[:j1]) + changed + "".join(new[j2:])
            yield _mutant(output, whole, f"{match.group()} became another number", bars=not tolerant)
        for match in _spread([one for one in _WORD.finditer(piece) if one.group() not in before], 1):
            changed = _replaced(piece, match, match.group()[::-1] + "q")
            yield _mutant(output, "".join(new[:j1]) + changed + "".join(new[j2:]), f"{match.group()!r} changed")
    yield _mutant(output, b"", "emptied", "presence-only")


def _code(output: Output) -> Iterator[Mutant]:
    if output.language != "python":
        yield _mutant(output, b"#!/bin/sh\nexit 0\n", "a program that does nothing", "presence-only")
        return
    try:
        tree = ast.parse(output.text)
    except (SyntaxError, ValueError):
        return
    named = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    yield _mutant(
        output, _stubbed(output.text, {node.name for node in named}), "all functions return nothing", "presence-only"
    )
    for node in named[:8]:
        if node.name.startswith("__"):
            continue
        yield _mutant(
            output, _stubbed(output.text, {node.name}), f"{node.name}() returns nothing", "mutant-passes", bars=False
        )
    yield from _operators(output)


def _stubbed(text: str, names: set[str]) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
            node.body = [ast.Return(value=ast.Constant(value=None))]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def _operators(output: Output) -> Iterator[Mutant]:
    """One operator or constant changed. Whether the change matters to any input is not known, so it only warns."""
    count = sum(1 for node in ast.walk(ast.parse(output.text)) if _swappable(node))
    for place in _spread(list(range(count)), 6):
        tree = ast.parse(output.text)
        node = [one for one in ast.walk(tree) if _swappable(one)][place]
        if isinstance(node, ast.BinOp):
            node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
        elif isinstance(node, ast.Compare):
            node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        line = getattr(node, "lineno", 0)
        yield _mutant(output, ast.unparse(tree) + "\n", f"an operator of line {line} changed", bars=False)


def _swappable(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _SWAPS
    return isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS


def _spread(items: list[T], most: int) -> list[T]:
    """At most so many of the items, spread over all of them, first and last among them."""
    if len(items) <= most:
        return items
    if most == 1:
        return items[:1]
    return [items[place * (len(items) - 1) // (most - 1)] for place in range(most)]


def _replaced(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]
