"""Schemas inferred from values one after the other, in bounded memory.

A schema describes what was seen and forbids nothing. Objects whose keys keep coming (maps by id) become
``additionalProperties``; a set of words is called closed only after many sightings of each.
"""

from __future__ import annotations

from collections import Counter

from flightschool.records import Json

__all__ = ["Shape"]

_MOST_KEYS = 60
_MOST_WORDS = 8
_LEAST_VALUES = 20
_LEAST_SIGHTINGS = 3
_NUM_EXAMPLES = 3
_LONGEST_EXAMPLE = 80
_MOST_ITEMS = 20
_MOST_DEPTH = 12
_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Shape:
    """What the values at one place looked like."""

    def __init__(self, depth: int = 0) -> None:
        self.count = 0
        self._depth = depth
        self._kinds: Counter[str] = Counter()
        self._fields: dict[str, Shape] = {}
        self._others: Shape | None = None
        self._items: Shape | None = None
        self._words: Counter[str] = Counter()
        self._many_words = False
        self._examples: list[Json] = []

    def add(self, value: Json) -> None:
        """One more value."""
        self.count += 1
        kind = "null" if value is None else _NAMES.get(type(value), "string")
        self._kinds[kind] += 1
        if self._depth >= _MOST_DEPTH:
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                self._field(key).add(inner)
        elif isinstance(value, list):
            self._items = self._items or Shape(self._depth + 1)
            for inner in value[:_MOST_ITEMS]:
                self._items.add(inner)
        elif isinstance(value, str):
            self._word(value)
        elif value is not None and len(self._examples) < _NUM_EXAMPLES and value not in self._examples:
            self._examples.append(value)

    def _field(self, key: str) -> Shape:
        if self._others is not None:
            return self._others
        found = self._fields.get(key)
        if found is None:
            if len(self._fields) >= _MOST_KEYS:  # a map by id, not a record
                self._others = Shape(self._depth + 1)
                self._fields = {}
                return self._others
            found = self._fields[key] = Shape(self._depth + 1)
        return found

    def _word(self, text: str) -> None:
        if not self._many_words:
            self._words[text[:_LONGEST_EXAMPLE]] += 1
            if len(self._words) > _MOST_WORDS:
                self._many_words = True
                self._examples += list(self._words)[: _NUM_EXAMPLES - len(self._examples)]
                self._words.clear()

    def schema(self) -> dict[str, Json]:
        """JSON Schema of what was seen; empty if nothing was."""
        if not self.count:
            return {}
        kinds = sorted(self._kinds)
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer")
        schema: dict[str, Json] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if self._others is not None:
            schema["additionalProperties"] = self._others.schema()
        elif self._fields:
            objects = self._kinds["object"]
            schema["properties"] = {key: shape.schema() for key, shape in self._fields.items()}
            schema["required"] = [key for key, shape in self._fields.items() if shape.count == objects]
        if self._items is not None and self._items.count:
            schema["items"] = self._items.schema()
        return schema | self._values()

    def _values(self) -> dict[str, Json]:
        words = self._words
        closed = (
            set(self._kinds) == {"string"}
            and self.count >= _LEAST_VALUES
            and 2 <= len(words) <= _MOST_WORDS
            and min(words.values()) >= _LEAST_SIGHTINGS
            and not any(char.isdigit() or char.isspace() for word in words for char in word)
        )
        if closed:
            return {"enum": sorted(words)}
        examples = [*self._examples, *words][:_NUM_EXAMPLES]
        return {"examples": examples} if examples else {}
