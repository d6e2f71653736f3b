"""Other right answers to questions that have several: found by solving the question again from the inputs in view.

Only questions whose rules can be read off inputs and reference are solved: orders under constraints, shortest ways in
a grid, cheapest paths in a graph, ties for the largest or most frequent. An answer counts where the instruction leaves
the choice open.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.outputs import Output

__all__ = ["alternatives_of"]

_OPEN: Final = re.compile(
    r"\b(?:an?|any|some|one) (?:\w+ ){0,2}?(?:order|ordering|sequence|schedule|way|path|route|walk"
    r"|solution|arrangement)\b",
    re.I,
)
_TIES: Final = re.compile(
    r"\bties?\b|\btied\b|alphabetic|lexicograph|\bfirst\b|\bearli|\bsmaller\b|if (?:several|there are"
    r"|more than one|two)"
    r"|deterministic|\bunique\b|\blast\b",
    re.I,
)
_MOST: Final = re.compile(r"largest|longest|highest|biggest|heaviest|maximum|\bmax\b|\bmost\b|greatest|oldest", re.I)
_LEAST: Final = re.compile(r"smallest|shortest|lowest|lightest|minimum|\bmin\b|\bleast\b|\bfewest|cheapest", re.I)
_OFTEN: Final = re.compile(r"most (?:frequent|common|often|popular)|occurs (?:the )?most", re.I)
_TOKEN: Final = re.compile(r"[\w.@/+-]+")
_STEPS: Final[tuple[Mapping[str, tuple[int, int]], ...]] = (
    {"N": (-1, 0), "S": (1, 0), "W": (0, -1), "E": (0, 1)},
    {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)},
)
MOST_CELLS: Final = 10_000
MOST_TOKENS: Final = 400
MOST_WORK: Final = 20_000


def alternatives_of(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """Text that answers as well, and how it was found."""
    if output.kind != "text" or output.before is not None:
        return
    tokens = output.text.split()
    mark = "\n" if len(output.text.strip().splitlines()) > 1 else " "
    if _OPEN.search(view.instruction) and not _TIES.search(view.instruction):
        for text in view.inputs.values():
            order = _other_order(tokens, text) or _other_path(tokens, text)
            if order:
                yield mark.join(order) + "\n", "another order that keeps to the same constraints"
                break
        way = next((found for text in view.inputs.values() if (found := _other_way(output.text.strip(), text))), "")
        if way:
            yield way + "\n", "another way that is as short"
    if not _TIES.search(view.instruction):
        yield from _tied(output.text.strip(), view)


# ------------------------------------------------------------------------------------------------ orders


def _other_order(tokens: Sequence[str], text: str) -> list[str]:
    """Another order of the same names under the constraints that an input lists and the reference keeps to.

    Lines name what goes before or after what: ``a: b c``, ``a -> b``, ``a b``. Which of the two is read off the
    reference: all pairs must stand the same way round in it.
    """
    place = {token: at for at, token in enumerate(tokens)}
    if not 3 <= len(tokens) <= MOST_TOKENS or len(place) != len(tokens):
        return []
    pairs = {
        (words[0], word)
        for words in map(_TOKEN.findall, text.splitlines())
        if words and words[0] in place
        for word in words[1:]
        if word in place and word != words[0]
    }
    if len(pairs) < 2:
        return []
    if all(place[a] > place[b] for a, b in pairs):
        pairs = {(b, a) for a, b in pairs}
    elif not all(place[a] < place[b] for a, b in pairs):
        return []
    before = {token: {a for a, b in pairs if b == token} for token in tokens}
    found: list[str] = []
    while len(found) < len(tokens):  # of those that may come next, the one that the reference has last
        ready = [token for token in tokens if token not in found and before[token] <= set(found)]
        found.append(ready[-1])
    return found if found != list(tokens) else []


def _other_path(tokens: Sequence[str], text: str) -> list[str]:
    """Another path between the same ends of a graph (lines ``a b`` or ``a b cost``) that costs the same."""
    edges: dict[str, dict[str, float]] = {}
    for words in map(str.split, text.splitlines()):
        if len(words) not in (2, 3):
            continue
        try:
            cost = float(words[2]) if len(words) == 3 else 1.0
        except ValueError:
            return []
        edges.setdefault(words[0], {})[words[1]] = cost
        edges.setdefault(words[1], {}).setdefault(words[0], cost)
    if not 3 <= len(tokens) <= MOST_TOKENS or any(b not in edges.get(a, {}) for a, b in pairwise(tokens)):
        return []
    total = sum(edges[a][b] for a, b in pairwise(tokens))
    todo: list[tuple[float, list[str]]] = [(0.0, [tokens[0]])]
    for _ in range(MOST_WORK):
        if not todo:
            break
        cost, path = todo.pop()
        if path[-1] == tokens[-1]:
            if abs(cost - total) < 1e-9 and path != list(tokens) and _is_directed(path, text):
                return path
            continue
        for name, more in edges[path[-1]].items():
            if cost + more <= total + 1e-9 and name not in path:
                todo.append((cost + more, [*path, name]))
    return []


def _is_directed(path: Sequence[str], text: str) -> bool:
    """Whether every step stands in the text as it is, so that one-way edges are kept to."""
    lines = {tuple(line.split()[:2]) for line in text.splitlines()}
    return all(pair in lines for pair in pairwise(path))


# ------------------------------------------------------------------------------------------------ ways in a grid


def _other_way(way: str, text: str) -> str:
    """Another way of the same length between the ends of the reference's way in a grid of characters."""
    steps = next((one for one in _STEPS if way and set(way.upper()) <= set(one)), None)
    rows = [line for line in text.splitlines() if line]
    if steps is None or len(rows) < 2 or len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > MOST_CELLS:
        return ""
    counts = Counter("".join(rows))
    marks = [mark for mark, count in counts.items() if count == 1]
    for begin in marks:
        at = next((y, row.index(begin)) for y, row in enumerate(rows) if begin in row)
        cells = _walked(at, way.upper(), steps, rows)
        end = rows[cells[-1][0]][cells[-1][1]] if cells else ""
        if end in marks and end != begin:
            walls = set(counts) - {rows[y][x] for y, x in cells}
            other = _shortest(at, cells[-1], steps, rows, walls, way.upper())
            return other if other and other != way.upper() and len(other) == len(way) else ""
    return ""


def _walked(
    at: tuple[int, int], way: str, steps: Mapping[str, tuple[int, int]], rows: Sequence[str]
) -> list[tuple[int, int]]:
    cells = [at]
    for letter in way:
        y, x = cells[-1][0] + steps[letter][0], cells[-1][1] + steps[letter][1]
        if not (0 <= y < len(rows) and 0 <= x < len(rows[0])):
            return []
        cells.append((y, x))
    return cells


def _shortest(
    begin: tuple[int, int],
    end: tuple[int, int],
    steps: Mapping[str, tuple[int, int]],
    rows: Sequence[str],
    walls: set[str],
    unlike: str,
) -> str:
    """A shortest way that differs from a given one where there is a choice; breadth first from the end."""
    away = {end: 0}
    todo = deque([end])
    while todo:
        y, x = todo.popleft()
        for dy, dx in steps.values():
            cell = (y + dy, x + dx)
            inside = 0 <= cell[0] < len(rows) and 0 <= cell[1] < len(rows[0])
            if inside and cell not in away and rows[cell[0]][cell[1]] not in walls:
                away[cell] = away[y, x] + 1
                todo.append(cell)
    at, found, differs = begin, "", False
    while at != end and len(found) < len(unlike):
        nearer = [
            letter
            for letter, (dy, dx) in steps.items()
            if away.get((at[0] + dy, at[1] + dx), MOST_CELLS) == away.get(at, MOST_CELLS) - 1
        ]
        if not nearer:
            return ""
        own = unlike[len(found)]
        other = next((letter for letter in nearer if letter != own), own) if not differs else nearer[0]
        differs = differs or other != own
        found += other if other in nearer else nearer[0]
        at = (at[0] + steps[found[-1]][0], at[1] + steps[found[-1]][1])
    return found if at == end else ""


# ------------------------------------------------------------------------------------------------ ties


def _tied(answer: str, view: InView) -> Iterator[tuple[str, str]]:
    """Another row or word that is as large, as small, or as frequent."""
    if not answer or "\n" in answer:
        return
    told = "another answer that ties with it, of which the instruction says nothing"
    if _OFTEN.search(view.instruction):
        for text in view.inputs.values():
            counts = Counter(_TOKEN.findall(text))
            most = max(counts.values(), default=0)
            others = [word for word, count in counts.items() if count == most and word != answer]
            if counts.get(answer) == most > 1 and others and view.instruction.count(answer) == 0:
                yield others[-1] + "\n", told
        return
    largest = _MOST.search(view.instruction) is not None
    if largest == (_LEAST.search(view.instruction) is not None):
        return
    for text in view.inputs.values():
        other = _as_large(answer, [line for line in text.splitlines() if line.strip()], largest=largest)
        if other:
            yield other + "\n", told


def _as_large(answer: str, lines: Sequence[str], *, largest: bool) -> str:
    """The same field of another row with the same extreme number in the one column that makes the answer extreme."""
    mark = next((one for one in ("\t", ",", ";", "|") if lines and all(one in line for line in lines)), None)
    rows = [[cell.strip() for cell in line.split(mark)] for line in lines]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return ""
    own = [(at, row.index(answer)) for at, row in enumerate(rows) if answer in row]
    if len(own) != 1:
        return ""
    at, column = own[0]
    found: list[str] = []
    for other in range(len(rows[0])):
        body = [row for row in rows if re.fullmatch(r"-?\d+(?:\.\d+)?", row[other])]
        if other == column or len(body) < len(rows) - 1 or rows[at] not in body:
            continue
        values = {float(row[other]) for row in body}
        extreme = max(values) if largest else min(values)
        if len(values) > 1 and float(rows[at][other]) == extreme:
            found.append(next((r[column] for r in body if r is not rows[at] and float(r[other]) == extreme), ""))
    return found[0] if len(found) == 1 else ""
