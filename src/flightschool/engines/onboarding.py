"""What must hold of an unknown model folder before anyone trains it, checked one by one with figures.

Each check returns a ``FolderCheck`` and never raises for what it examines: a folder is told all that is wrong with it
at once. What cannot even be read raises ``ModelFolderError`` from the loaders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.records import Record

__all__ = ["FolderCheck", "check_ends", "check_padding", "check_template", "check_vocabulary", "read_tables"]

_MOST_PADDING = 0.3
"""Rows of an embedding are padded to round numbers; a tokenizer that leaves more of them unused is another model's."""
_TALK: tuple[dict[str, str], ...] = (
    {"role": "system", "content": "Use the tools."},
    {"role": "user", "content": "Price of the pump?"},
    {"role": "assistant", "content": '<think>It is listed.</think>\n\nget_price {"item": "pump"}'},
    {"role": "user", "content": 'Result: {"price": 90}'},
    {"role": "assistant", "content": "It is 90."},
    {"role": "user", "content": "Thanks."},
)
"""What templates have been seen to change afterwards: thoughts, and the turn before the last."""


class FolderCheck(Record, frozen=True, kw_only=True):
    """One thing that was examined."""

    name: str
    passed: bool
    found: str
    """What was found, with figures."""
    expected: str = ""
    mend: str = ""


def read_tables(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """``config.json`` and ``tokenizer_config.json`` (empty if there is none).

    Raises:
        ModelFolderError: a file is missing or no JSON object.
    """
    from flightschool.engines.folders import read_json

    tokens = folder / "tokenizer_config.json"
    return read_json(folder / "config.json"), read_json(tokens) if tokens.is_file() else {}


def check_vocabulary(tokenizer: ChatTokenizer, vocab: int) -> FolderCheck:
    """Ids of the tokenizer and rows of the model belong together."""
    ids = tokenizer.num_ids
    fits = ids <= vocab and vocab - ids <= _MOST_PADDING * vocab
    return FolderCheck(
        name="vocabulary",
        passed=fits,
        found=f"{ids} ids for {vocab} rows",
        expected="as many rows as ids, or a few more",
        mend="" if fits else "tokenizer and weights are of different models: take both from one source",
    )


def check_ends(tokenizer: ChatTokenizer, config: Mapping[str, Any]) -> FolderCheck:
    """The model's end tokens are control tokens of this tokenizer, and among what ends a turn."""
    text = config.get("text_config") or config
    named = config.get("eos_token_id", text.get("eos_token_id"))
    ends = [] if named is None else list(named) if isinstance(named, list) else [named]
    stops = tokenizer.stop_token_ids
    known = [end for end in ends if tokenizer.control_text(end)]
    passed = len(known) == len(ends) and (not ends or any(end in stops for end in ends))
    shown = ", ".join(f"{end} = {tokenizer.control_text(end) or 'no control token'!r}" for end in ends)
    return FolderCheck(
        name="end of turn",
        passed=passed,
        found=f"turns end with {stops}; config.json names {shown or 'none'}",
        expected="the same control tokens",
        mend="" if passed else "tokenizer and config.json are of different models: take both from one source",
    )


def check_padding(tokenizer: ChatTokenizer, config: Mapping[str, Any], table: Mapping[str, Any]) -> FolderCheck:
    """A padding token is named: our own engine needs none, trainers and servers of others do."""
    named = table.get("pad_token")
    text = named.get("content") if isinstance(named, dict) else named
    token = tokenizer.control_id(text) if text else config.get("pad_token_id")
    passed = isinstance(token, int) and 0 <= token < tokenizer.num_ids
    spare = next((tokenizer.control_text(stop) for stop in reversed(tokenizer.stop_token_ids)), "")
    return FolderCheck(
        name="padding token",
        passed=passed,
        found=f"{text or token!r}" if passed else "none" if text is None else f"{text!r} is no token of the tokenizer",
        expected="pad_token in tokenizer_config.json, or pad_token_id in config.json",
        mend="" if passed else f'add "pad_token": {json.dumps(spare)} to tokenizer_config.json',
    )


def check_template(folder: Path, tokenizer: ChatTokenizer, table: Mapping[str, Any]) -> FolderCheck:
    """The folder's chat template is append-only, and renders what is trained here.

    Nothing here uses the template (see ``tokenizer``); whoever serves the trained model does.
    """
    source = _template(folder, table)
    name = "chat template"
    if source is None:
        return FolderCheck(name=name, passed=True, found="none; turns are written by the tokenizer's control tokens")
    try:
        shown = [_rendered(source, table, _TALK[:count], opens=False) for count in range(2, len(_TALK) + 1)]
        opened = _rendered(source, table, _TALK[:2], opens=True)
    except ValueError as error:
        return FolderCheck(
            name=name,
            passed=False,
            found=f"it cannot be rendered: {error}",
            expected="a template of system, user and assistant turns",
            mend="replace chat_template in tokenizer_config.json",
        )
    pairs = enumerate(pairwise(shown))
    broken = next((place for place, (less, more) in pairs if not more.startswith(less)), None)
    if broken is not None or not opened.startswith(shown[0]):
        turn = 2 if broken is None else broken + 3
        return FolderCheck(
            name=name,
            passed=False,
            found=f"not append-only: turn {turn} of a conversation changes what was rendered before it",
            expected="renderings that begin with those of every shorter conversation",
            mend="serve the trained model with this chat_template: " + plain_template(tokenizer),
        )
    return _agrees(name, shown[-1], tokenizer)


def _agrees(name: str, text: str, tokenizer: ChatTokenizer) -> FolderCheck:
    ours = tuple(token for turn in _TALK for token in tokenizer.turn(turn["role"], turn["content"]))
    theirs = tokenizer.encode_with_control(text)
    differ = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    place = min(len(ours), len(theirs)) if differ is None else differ
    same = differ is None and not tokenizer.decode(ours[place:] + theirs[place:]).strip()
    return FolderCheck(
        name=name,
        passed=same,
        found="append-only; renders the tokens that are trained"
        if same
        else f"append-only, but from token {place} on it renders {tokenizer.decode(theirs[place : place + 8])!r} "
        f"where {tokenizer.decode(ours[place : place + 8])!r} is trained",
        expected="the same tokens as the turns that are trained",
        mend="" if same else "serve the trained model with this chat_template: " + plain_template(tokenizer),
    )


def plain_template(tokenizer: ChatTokenizer) -> str:
    """A chat template that renders exactly the turns that are trained here."""
    form = tokenizer.format
    role = f"{json.dumps(form.start)} + message['role'] + {json.dumps(form.role_end + form.after_role)}"
    begin = "" if not form.begin else "{{ " + json.dumps(form.begin) + " if messages[0]['role'] == 'system' else '' }}"
    turn = "{{ " + role + " + message['content'] + " + json.dumps(form.end + form.after_turn) + " }}"
    opening = "{{ " + role.replace("message['role']", "'assistant'") + " }}"
    return (
        begin
        + "{% for message in messages %}"
        + turn
        + "{% endfor %}{% if add_generation_prompt %}"
        + opening
        + "{% endif %}"
    )


def _template(folder: Path, table: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    named = table.get("chat_template")
    if isinstance(named, list):  # several by name
        named = next((row.get("template") for row in named if row.get("name") == "default"), None)
    return named if isinstance(named, str) else None


def _rendered(source: str, table: Mapping[str, Any], talk: Sequence[Mapping[str, str]], *, opens: bool) -> str:
    """Render as transformers does. Raises ``ValueError`` for whatever a template raises."""
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> str:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda _: "2024-01-01"
    special = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in table.items()
        if name.endswith("_token")
    }
    try:
        return sandbox.from_string(source).render(messages=talk, tools=None, add_generation_prompt=opens, **special)
    except (TemplateError, SecurityError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(str(error)) from None
