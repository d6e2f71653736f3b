"""Families of tasks as data: how they are written down, and how they are read.

One TOML file a stratum. A family states its world (``site``, ``slots``, ``rows``), its wording (``say``), its
structure (``variants``, ``steps``) and nothing about checks: those follow from the steps. Values are written

* ``$slot``: a slot of the case, or of its variant,
* ``~pool``: drawn from a pool of the site (in rows and slots only),
* ``2.field``: what step 2 answered (in steps only); ``2.$slot`` where the instruction names the field,
* anything else: itself.

A slot is a pattern (``P-##``: each ``#`` a digit, each ``@`` a capital letter) or ``~pool``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from flightschool.config import load_toml
from flightschool.errors import ConfigError
from flightschool.records import Record

__all__ = ["STRATA", "Family", "Scalar", "Stratum", "load_sites", "load_strata", "reworded"]

Scalar = str | int

STRATA = ("two_step", "three_step", "conditional", "abstain", "approval")
"""In rising difficulty."""


class Family(Record, frozen=True, kw_only=True):
    """Tasks that share wording, condition structure and world."""

    name: str
    stratum: str
    kind: str
    """Condition structure, for instance ``copy`` or ``choose_field``."""
    site: str
    slots: dict[str, str]
    say: str
    """Template of the instruction, with slots in braces."""
    rule: str
    """The sentence of the policy that the agent is shown."""
    rows: tuple[dict[str, Scalar], ...]
    """Rows of one case; ``in`` names the table."""
    steps: tuple[dict[str, Scalar], ...]
    """The right acts in order; ``call`` names the tool, ``only`` the variants that it belongs to (all if left out)."""
    variants: tuple[dict[str, Scalar], ...] = ({"name": "only"},)
    """Slots by kind of case; cases take the variants in turn."""
    extra: tuple[str, ...] = ()
    """Tools that are shown beside those of the steps."""

    def steps_of(self, variant: str) -> list[dict[str, Scalar]]:
        """Steps of one variant."""
        return [step for step in self.steps if step.get("only", variant) == variant]


class Stratum(Record, frozen=True, kw_only=True):
    """Families of one difficulty, with their share of real traffic."""

    name: str
    share: float
    rise: int
    """Difficulty, from 1."""
    families: tuple[Family, ...]


def _table(name: str) -> dict[str, Any]:
    source = files("flightschool.environments.desk").joinpath(name)
    return tomllib.loads(source.read_text(encoding="utf-8"))


@cache
def load_sites() -> dict[str, dict[str, list[Scalar]]]:
    """Site → pool → values; the common pools are part of each site."""
    table = _table("sites.toml")
    common = table.pop("common")
    return {site: common | pools for site, pools in table.items()}


@cache
def load_strata() -> tuple[Stratum, ...]:
    """All strata in rising difficulty."""
    return tuple(_stratum(name, _table(f"families/{name}.toml")) for name in STRATA)


def _stratum(name: str, table: dict[str, Any]) -> Stratum:
    share, rise = table.pop("share"), table.pop("rise")
    families = [msgspec.convert({"name": key, "stratum": name, **body}, Family) for key, body in table.items()]
    return Stratum(name=name, share=share, rise=rise, families=tuple(families))


def reworded(strata: tuple[Stratum, ...], path: Path) -> tuple[Stratum, ...]:
    """The strata with other wording. The file maps family → ``say`` and, if wanted, ``rule``.

    Raises:
        ConfigError: an unknown family or key, or a wording that leaves out or invents a slot.
    """
    table = load_toml(path)
    known = {family.name: family for stratum in strata for family in stratum.families}
    changed = {name: _reword(_known(name, known, path), body, path) for name, body in table.items()}
    return tuple(
        msgspec.structs.replace(stratum, families=tuple(changed.get(f.name, f) for f in stratum.families))
        for stratum in strata
    )


def _known(name: str, known: Mapping[str, Family], path: Path) -> Family:
    if name not in known:
        raise ConfigError(
            f"unknown family {name!r}", where=str(path), expected="a family of the desk", mend="rename it"
        )
    return known[name]


def _reword(family: Family, body: Any, path: Path) -> Family:
    where = f"{path}, [{family.name}]"
    if not isinstance(body, dict) or not all(isinstance(text, str) for text in body.values()):
        raise ConfigError("not a table of texts", where=where, expected='say = "…"', mend="correct it")
    if unknown := set(body) - {"say", "rule"}:
        raise ConfigError(f"unknown key {min(unknown)!r}", where=where, expected="say or rule", mend="remove it")
    changed = msgspec.structs.replace(family, **body)
    if slots_of(changed.say) != slots_of(family.say):
        expected = ", ".join(f"{{{slot}}}" for slot in sorted(slots_of(family.say)))
        raise ConfigError("the wording has other slots", where=where, expected=expected, mend="name exactly these")
    return changed


def slots_of(template: str) -> set[str]:
    """Names in braces.  ``{order}`` gives ``order``."""
    return {piece.split("}")[0] for piece in template.split("{")[1:]}
