"""The redactor: walks episodes and replaces what the detectors find by pseudonyms.

A pseudonym is ``KIND_`` and 48 bits of HMAC-SHA-256 (RFC 2104) over kind and normalised value: upper and lower case of
an e-mail, blanks in a card number and the spelling of a name make no difference. It holds only letters, digits and an
underscore, so it is safe in JSON, in URLs and in identifiers, and no detector takes it for anything.
"""

from __future__ import annotations

import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightschool.errors import InputError
from flightschool.records import Json, Message, Record, ToolCall, ToolSpec
from flightschool.traces.loading import parse_json_document, read_text, result_value
from flightschool.traces.records import RecordedCall, RecordedEpisode, RecordedTurn, TaskHint
from flightschool.traces.redaction.detectors import PSEUDONYM, Found, find, fits_key, kind_of_key
from flightschool.traces.redaction.names import name_key, names_pattern

__all__ = ["RedactionReport", "Redactor", "redact_state"]

_HEX = 12
_MOST_DEPTH = 120


class RedactionReport(Record, frozen=True, kw_only=True):
    """What was replaced. Holds no original and no pseudonym."""

    num_replaced: dict[str, int] = msgspec.field(default_factory=dict)
    """Kind → places."""
    num_distinct: dict[str, int] = msgspec.field(default_factory=dict)
    """Kind → distinct values."""
    places: dict[str, int] = msgspec.field(default_factory=dict)
    """Where (role of a message, ``arguments``, ``result``, ``metadata`` …) → places."""
    num_episodes: int = 0
    num_episodes_touched: int = 0


class Redactor:
    """Replaces secrets and personal data; equal values get equal pseudonyms for as long as the key is the same.

    Args:
        key: of the workspace (``workspace_key``); at least 16 bytes.
        names: names of people and firms to replace.
    """

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        if len(key) < 16:
            raise InputError(
                "the key for pseudonyms is too short", expected="at least 16 bytes", mend="use workspace_key"
            )
        self._key = key
        self._names = names_pattern(names)
        self._replaced: Counter[str] = Counter()
        self._distinct: dict[str, set[str]] = {}
        self._places: Counter[str] = Counter()
        self._place = ""
        self._episodes = self._touched = 0

    def report(self) -> RedactionReport:
        """What was replaced so far."""
        return RedactionReport(
            num_replaced=dict(sorted(self._replaced.items())),
            num_distinct={kind: len(values) for kind, values in sorted(self._distinct.items())},
            places=dict(sorted(self._places.items())),
            num_episodes=self._episodes,
            num_episodes_touched=self._touched,
        )

    def episodes(self, episodes: Iterable[RecordedEpisode]) -> Iterator[RecordedEpisode]:
        """The episodes, redacted, one at a time."""
        for episode in episodes:
            before = self._replaced.total()
            redacted = self.episode(episode)
            self._episodes += 1
            self._touched += self._replaced.total() > before
            yield redacted

    def episode(self, episode: RecordedEpisode) -> RecordedEpisode:
        """One episode, children included. Ids of calls stay: they join calls and answers and are made by machines."""
        messages = tuple(self._message(message) for message in episode.messages)
        # A call repeats what its messages hold; that is replaced once and counted once.
        known = {m.tool_call_id: (m.content, r.content) for m, r in zip(episode.messages, messages, strict=True)}
        asked = {
            call.id: (call.arguments, redacted.arguments)
            for message, new in zip(episode.messages, messages, strict=True)
            for call, redacted in zip(message.tool_calls, new.tool_calls, strict=True)
        }
        return msgspec.structs.replace(
            episode,
            id=self._at("id", episode.id),
            source=self._at("source", episode.source),
            messages=messages,
            calls=tuple(self._call(call, known.get(call.id), asked.get(call.id)) for call in episode.calls),
            tools=tuple(self._tool(tool) for tool in episode.tools),
            hint=self._hint(episode.hint),
            metadata=self._at("metadata", episode.metadata),
            labels=self._at("labels", episode.labels),
            issues=tuple(self._at("issues", issue) for issue in episode.issues),
            turns=tuple(self._turn(turn) for turn in episode.turns),
            children=tuple(self.episode(child) for child in episode.children),
        )

    def value(self, value: Json) -> Json:
        """JSON with texts, keys and telling numbers replaced; texts that are JSON themselves stay valid JSON."""
        return self._value(value, "", 0)

    def text(self, text: str) -> str:
        """A text, replaced; JSON in it stays valid JSON."""
        found: str = self._value(text, "", 0)
        return found

    # ------------------------------------------------------------------------------------------------ records

    def _at(self, place: str, value: Json) -> Any:
        self._place = place
        return self.value(value)

    def _message(self, message: Message) -> Message:
        calls = tuple(self._asked(call) for call in message.tool_calls)
        place = "result" if message.role == "tool" else message.role
        return msgspec.structs.replace(message, content=self._at(place, message.content), tool_calls=calls)

    def _asked(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=self._at("arguments", call.arguments))

    def _call(
        self, call: RecordedCall, answer: tuple[str, str] | None, asked: tuple[Json, Json] | None
    ) -> RecordedCall:
        text = answer[1] if answer is not None and answer[0] == call.text else self._at("result", call.text)
        same = asked is not None and asked[0] == call.arguments
        arguments = asked[1] if asked is not None and same else self._at("arguments", call.arguments)
        # Parsed anew, so that value and text go on saying the same.
        value = call.value if text == call.text else result_value(text)
        return msgspec.structs.replace(call, arguments=arguments, text=text, value=value)

    def _tool(self, tool: ToolSpec) -> ToolSpec:
        self._place = "tools"
        return msgspec.structs.replace(
            tool, description=self.text(tool.description), parameters=self._schema(tool.parameters)
        )

    def _schema(self, schema: Json) -> Json:
        """A schema: texts are replaced, keys are names of arguments and stay, and say nothing about the values."""
        if isinstance(schema, dict):
            return {key: self._schema(value) for key, value in schema.items()}
        if isinstance(schema, list):
            return [self._schema(value) for value in schema]
        return self.text(schema) if isinstance(schema, str) else schema

    def _hint(self, hint: TaskHint) -> TaskHint:
        actions = None if hint.actions is None else tuple(self._asked(action) for action in hint.actions)
        self._place = "task"
        return msgspec.structs.replace(
            hint,
            id=self.text(hint.id),
            family=self.text(hint.family),
            stratum=self.text(hint.stratum),
            instruction=self.text(hint.instruction),
            actions=actions,
            outputs=tuple(self.text(output) for output in hint.outputs),
        )

    def _turn(self, turn: RecordedTurn) -> RecordedTurn:
        return msgspec.structs.replace(turn, reasoning=self._at("reasoning", turn.reasoning))

    # ------------------------------------------------------------------------------------------------ values

    def _value(self, value: Json, key: str, depth: int) -> Json:
        kind = kind_of_key(key) if key else ""
        if isinstance(value, str):
            return self._text(value, kind, depth)
        if isinstance(value, dict) and depth < _MOST_DEPTH:
            return {self._plain(k): self._value(v, k, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple) and depth < _MOST_DEPTH:
            return [self._value(item, key, depth + 1) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            if kind in ("phone", "card") and fits_key(value, kind):
                return self._pseudonym(kind, str(value))
            if kind != "other" and any(found == "card" for _, _, found in find(str(value))):
                return self._pseudonym("card", str(value))
        return value

    def _text(self, text: str, kind: str, depth: int) -> str:
        if kind == "secret" and fits_key(text, kind):
            return self._pseudonym(kind, text)
        if text.lstrip()[:1] in ("{", "[") and depth < _MOST_DEPTH:
            inner = result_value(text)
            if isinstance(inner, dict | list):
                return _rewritten(text, inner, self._value(inner, "", depth + 1))
        if kind in ("phone", "card") and fits_key(text, kind):
            return self._pseudonym(kind, text)
        return self._plain(text, "other" if kind == "other" else "card")

    def _plain(self, text: str, bare_digits_are: str = "card") -> str:
        pieces: list[str] = []
        at = 0
        for begin, end, kind in self._found(text, bare_digits_are):
            pieces += [text[at:begin], self._pseudonym(kind, text[begin:end])]
            at = end
        return text if not pieces else "".join([*pieces, text[at:]])

    def _found(self, text: str, bare_digits_are: str) -> list[Found]:
        found = find(text, bare_digits_are=bare_digits_are)
        taken = [(*match.span(), "") for match in PSEUDONYM.finditer(text)] if self._names else []
        for pattern in self._names:
            for match in pattern.finditer(text):
                begin, end = match.span()
                if not any(begin < e and b < end for b, e, _ in (*found, *taken)):
                    found.append((begin, end, "name"))
        return sorted(found)

    def _pseudonym(self, kind: str, original: str) -> str:
        normal = _NORMAL[kind](original)
        self._replaced[kind] += 1
        self._places[self._place or "value"] += 1
        data = f"{kind}\x1f{normal}".encode()
        token = hmac.digest(self._key, data, "sha256").hex()[:_HEX]
        self._distinct.setdefault(kind, set()).add(token)
        return f"{kind.upper()}_{token}"


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


_NORMAL: dict[str, Callable[[str], str]] = {
    "secret": str,
    "email": str.casefold,
    "card": _digits,
    "phone": _digits,
    "name": name_key,
}


def _rewritten(text: str, before: Json, after: Json) -> str:
    """JSON text of ``after`` in the layout of ``text``, if that is one of the usual ones."""
    if before == after:
        return text
    for ascii_only in (False, True):
        for separators in ((", ", ": "), (",", ":")):
            if json.dumps(before, ensure_ascii=ascii_only, separators=separators) == text.strip():
                return json.dumps(after, ensure_ascii=ascii_only, separators=separators)
    indent = 2 if "\n" in text.strip() else None
    return json.dumps(after, ensure_ascii=False, indent=indent)


def redact_state(source: Path, target: Path, redactor: Redactor) -> int:
    """Write the JSON files of a state folder, redacted with the same pseudonyms as the traces; how many files.

    An environment is built from traces and state that must go on naming the same people.

    Raises:
        InputError: no such folder, a file that is no JSON, a target that exists, or one that cannot be written.
    """
    if not source.is_dir():
        raise InputError("state not found", where=str(source), expected="a folder of JSON files", mend="check the path")
    files = sorted(file for file in source.iterdir() if file.suffix == ".json" and file.is_file())
    written = {file.name: redactor.value(parse_json_document(file, read_text(file))) for file in files}
    try:
        target.mkdir(parents=True, exist_ok=False)
        for name, value in written.items():
            (target / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            "the redacted state cannot be written", where=str(target), expected="a new folder", mend=str(error)
        ) from error
    return len(written)
