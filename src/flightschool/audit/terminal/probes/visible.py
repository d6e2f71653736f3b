"""Programs for small languages (patterns, filters, queries) that know nothing but the cases in view.

Where the tests use only cases that the policy has seen, a list of these passes in the place of any rule. The examples
of the instruction are tried as a pattern; the result that the tests compare with is tried as a filter that prints
it, if the tests give it no input but files in view.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.surface import Surface, mentions
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks", "fixed_programs", "patterns_of"]

_QUOTED: Final = re.compile(r"`([^`\n]{1,80})`|\"([^\"\n]{1,80})\"|'([^'\n]{2,80})'")
_USES_PATTERN: Final = re.compile(r"\bre\.|regex|grep|=~|fullmatch")
_TOOL: Final = re.compile(r"\b(jq|awk|gawk|mawk|sed|sqlite3?|execute)\b")
_LITERAL: Final = re.compile(r"'((?:[^'\\\n]|\\.){1,2000})'|\"((?:[^\"\\\n]|\\.){1,2000})\"")
_FED: Final = re.compile(r"<<|\becho\b[^\n]*\||\bprintf\b[^\n]*\||input\s*=|/tests/[\w./-]+\.(?!py\b|sh\b)\w+")
MOST_EXAMPLES: Final = 8
MOST_FIXED: Final = 6


def patterns_of(instruction: str, own: str) -> list[str]:
    """Alternatives of the instruction's first one, two … examples."""
    found = [next(part for part in match.groups() if part) for match in _QUOTED.finditer(instruction)]
    examples = [one for one in dict.fromkeys(found) if not one.startswith("/") and one != own][:MOST_EXAMPLES]
    return ["|".join(map(re.escape, examples[: count + 1])) for count in range(len(examples))]


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each output alone: the others stay as the reference left them."""
    surface, work = trial.surface, trial.work
    rest = {one.path: one.data for one in work.outputs}
    for output in work.outputs:
        if output.kind not in ("text", "table", "json") and output.language != "awk":
            continue
        if _USES_PATTERN.search(surface.grader_text) and len(output.text.strip().splitlines()) == 1:
            for pattern in patterns_of(surface.instruction, output.text.strip()):
                body = work.fill({**rest, output.path: f"{pattern}\n".encode()})
                what = f"a pattern that lists examples of the instruction in {output.path}"
                yield Attack(flaw="visible-cases", what=what, body=body)
        for told, text in fixed_programs(output, surface):
            body = work.fill({**rest, output.path: text.encode()})
            yield Attack(flaw="visible-cases", what=f"{told} in {output.path}", body=body)


def fixed_programs(output: Output, surface: Surface) -> Iterator[tuple[str, str]]:
    """Programs that print one fixed text: what the tests expect for the file in view that they give as input."""
    grader = surface.grader_text
    tool = _TOOL.search(grader)
    name = posixpath.basename(output.path)
    runs = [line for line in grader.splitlines() if name in line and not line.lstrip().startswith("#")]
    given = [one for one in surface.shipped if one.readable and one.path != output.path]
    if tool is None or not runs or _FED.search(grader) or output.text.strip() in surface.instruction:
        return
    if not all(any(mentions(line, one.path) for one in given) for line in runs):
        return
    literals = [match.group(1) or match.group(2) for match in _LITERAL.finditer(grader)]
    plain = [one for one in dict.fromkeys(literals) if not re.search(r"[$\\/%]|^\w+$|^-", one) and one != name]
    for literal in plain[:MOST_FIXED]:
        told = "a program that prints one fixed result"
        if tool.group(1) == "jq":
            try:
                json.loads(literal)
            except ValueError:
                continue
            yield told, literal + "\n"
        elif tool.group(1) in ("awk", "gawk", "mawk"):
            yield told, f"BEGIN {{ print {json.dumps(literal)}; exit }}\n"
        elif tool.group(1) == "sed":
            yield told, "1c\\\n" + literal + "\n1!d\n"
        else:
            quoted = literal.replace("'", "''")
            yield told, f"select '{quoted}'\n"
