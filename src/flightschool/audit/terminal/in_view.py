"""What a policy knows before it begins: the instruction and the texts that it can read; what is not"
" there is unknowable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from flightschool.audit.terminal.shipped import Shipped

__all__ = ["InView", "in_view"]

MOST_TEXT_BYTES: Final = 1 << 18
_SPLIT: Final = re.compile(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")
LEAST_WORD: Final = 3
_PACKED: Final = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, kw_only=True)
class InView:
    """The instruction and the readable text files of the image."""

    instruction: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Absolute path → text."""
    binary: str = ""
    """What can be read as text of the other files."""
    workdir: str = "/"
    """The policy's working directory."""
    packed: bool = False
    """Whether there are files whose content cannot be seen so: then nothing is said to be nowhere in view."""

    @cached_property
    def text(self) -> str:
        """All of it."""
        return "\n".join([self.instruction, *self.inputs, *self.inputs.values(), self.binary])

    @cached_property
    def _lowered(self) -> str:
        return self.text.lower()

    def speaks_of(self, name: str) -> bool:
        """Whether a name, or a part of it that is a word, stands anywhere in view, whatever its case or ending."""
        if self.packed:
            return True
        words = [word.lower() for word in _SPLIT.split(name) if len(word) >= LEAST_WORD]
        stems = [word.removesuffix("s").removesuffix("e") for word in words]
        return name.lower() in self._lowered or any(stem in self._lowered for stem in stems)


def in_view(instruction: str, shipped: Iterable[Shipped], made: Iterable[str], workdir: str = "/") -> InView:
    """What is in view of a task's policy.

    Args:
        instruction: of all steps.
        shipped: files of the image.
        made: paths of the reference's outputs, which are no inputs.
        workdir: of the policy.
    """
    left_out = set(made)
    readable = [one for one in shipped if one.readable and one.path not in left_out]
    small = [one for one in readable if one.size <= MOST_TEXT_BYTES]
    return InView(
        instruction=instruction,
        workdir=workdir,
        inputs={one.path: one.text for one in small if b"\0" not in one.data},
        binary="\n".join(one.text for one in small if b"\0" in one.data and not one.data.startswith(_PACKED)),
        packed=len(small) < len(readable) or any(one.data.startswith(_PACKED) for one in small),
    )
