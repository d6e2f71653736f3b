"""Stages of a Dockerfile: where each begins, which the last one stands on, and the arguments before the first FROM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flightschool.environments.terminal.dockerfile import Dockerfile, Instruction
from flightschool.environments.terminal.substitution import SubstitutionError, expand_word, split_words
from flightschool.errors import InputError

__all__ = ["Stage", "needed_stages", "platform_args", "split_stages"]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One FROM with what follows it."""

    index: int
    name: str
    """Lower case, as names of stages are compared; empty: unnamed."""
    image: str
    """Image, or name of the stage that it stands on."""
    platform: str
    line: int
    instructions: tuple[Instruction, ...]


def platform_args(architecture: str) -> dict[str, str]:
    """Arguments that a builder sets by itself."""
    parts = {"": f"linux/{architecture}", "OS": "linux", "ARCH": architecture, "VARIANT": ""}
    return {f"{side}{part or 'PLATFORM'}": value for side in ("TARGET", "BUILD") for part, value in parts.items()}


def split_stages(
    dockerfile: Dockerfile, build_args: Mapping[str, str], architecture: str, where: str
) -> tuple[list[Stage], dict[str, str]]:
    """All stages, and the arguments declared before them (which a stage sees only if it declares them again).

    Raises:
        InputError: something but ARG stands before the first FROM, there is no FROM, or a FROM cannot be read.
    """
    values = platform_args(architecture)
    heads: list[tuple[Instruction, list[Instruction]]] = []
    for instruction in dockerfile.instructions:
        if instruction.keyword == "FROM":
            heads.append((instruction, []))
        elif heads:
            heads[-1][1].append(instruction)
        elif instruction.keyword == "ARG":
            for word in split_words(instruction.rest, dockerfile.escape):
                name, equals, default = word.partition("=")
                if name in build_args:
                    values[name] = build_args[name]
                elif equals:
                    values[name] = _expand(default, values, dockerfile.escape, instruction, where)
        else:
            raise _error(f"{instruction.keyword} before the first FROM", where, instruction.line, "FROM first")
    if not heads:
        raise _error("no FROM", where, 1, "FROM with a base image")
    stages = [_stage(index, head, body, values, dockerfile.escape, where) for index, (head, body) in enumerate(heads)]
    return stages, values


def _stage(
    index: int, head: Instruction, body: Sequence[Instruction], values: Mapping[str, str], escape: str, where: str
) -> Stage:
    words = head.rest.split()
    named = len(words) == 3 and words[1].lower() == "as"
    if len(words) != 1 and not named:
        raise _error(f"FROM {head.rest!r} cannot be read", where, head.line, "FROM image [AS name]")
    image = _expand(words[0], values, escape, head, where)
    if not image:
        raise _error(f"the base {words[0]!r} is empty", where, head.line, "an image; give its ARG a default")
    platform = dict(head.flags).get("platform", "")
    return Stage(
        index=index,
        name=words[2].lower() if named else "",
        image=image,
        platform=_expand(platform, values, escape, head, where),
        line=head.line,
        instructions=tuple(body),
    )


def _expand(text: str, values: Mapping[str, str], escape: str, instruction: Instruction, where: str) -> str:
    try:
        return expand_word(text, values, escape)
    except SubstitutionError as error:
        raise _error(str(error), where, instruction.line, "a word with its variables set") from None


def needed_stages(stages: Sequence[Stage]) -> list[Stage]:
    """The last stage and those that it stands on (``FROM earlier``), lowest first. The builder skips all others."""
    chain = [stages[-1]]
    while True:
        below = chain[-1]
        parent = next((s for s in reversed(stages[: below.index]) if s.name and s.name == below.image.lower()), None)
        if parent is None:
            return chain[::-1]
        chain.append(parent)


def _error(what: str, where: str, line: int, expected: str) -> InputError:
    return InputError(what, where=f"{where}:{line}", expected=expected, mend="correct the Dockerfile")
