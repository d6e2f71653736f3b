"""Left by the build: bytecode without its source, backups, and generators that make what is expected."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case, places_of, solution_files

__all__ = ["detect"]

_GENERATES: Final = ("generat", "gen_", "make_", "build_", "create_", "setup_", "prepare", "seed_", "mk_", "gen.")
_ANSWER_WORDS: Final = (
    "expected",
    "answer",
    "ground_truth",
    "groundtruth",
    "solution",
    "gold",
    "correct",
    "truth",
    "reference",
)
_BACKUPS: Final = (".orig", ".bak", ".rej", ".swp", ".old", "~", ".save")


def detect(case: Case) -> Iterator[FlawFinding]:
    """Of the image."""
    modules = {
        posixpath.basename(path).partition(".")[0] for path in [*places_of(case).values(), *solution_files(case)]
    }
    executed = {run.path(word) for run in case.view.runs for word in run.argv[:3] if word}
    for file in case.view.readable():
        name = posixpath.basename(file.path)
        stem = name.partition(".")[0]
        if name.endswith((".pyc", ".pyo")):
            folder = posixpath.dirname(file.path)
            source = posixpath.join(folder.removesuffix("/__pycache__"), stem + ".py")
            if stem in modules or source not in case.view.files:
                yield case.finding(
                    "build-residue",
                    f"{file.path} is bytecode whose source is not in the image",
                    file.where,
                    0.8 if stem in modules else 0.6,
                    "remove __pycache__ in the same RUN step",
                )
        elif name.endswith(_BACKUPS) and file.path not in case.instruction and name not in case.instruction:
            original = next((file.path.removesuffix(end) for end in _BACKUPS if name.endswith(end)), "")
            if original in case.view.files or original in case.trust.output_paths:
                yield case.finding(
                    "build-residue",
                    f"{file.path} is an earlier state of {original}",
                    file.where,
                    0.5,
                    "leave it out of the image",
                )
        elif file.path in executed and name not in case.instruction:
            yield from _generator(case, file.path, file.where)


def _generator(case: Case, path: str, where: str) -> Iterator[FlawFinding]:
    """A script that the build ran and left: does it make, or name, what the tests expect?"""
    file = case.view.find(path)
    text = case.view.content(file).decode(errors="replace").lower() if file is not None else ""
    named = any(word in posixpath.basename(path).lower() for word in _GENERATES)
    makes = [word for word in _ANSWER_WORDS if word in text]
    if named and makes:
        yield case.finding(
            "build-residue",
            f"the build ran {path} and left it; it speaks of {makes[0]!r}",
            where,
            0.6,
            "remove the generator in the step that runs it, or build in another stage",
        )
