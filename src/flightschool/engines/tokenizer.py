"""Chat text to token ids and back, turn by turn, with the ``tokenizers`` library alone.

Why not the folder's own chat template: templates are programs over the whole conversation. They re-render earlier
turns (trimming, dropping thoughts, adding default prompts), so that the tokens of a long conversation need not begin
with those of a short one; what was sampled would then not be what trains. Here a conversation is the plain
concatenation of turns, hence append-only by construction, and on ordinary text equal to what ChatML and Llama 3
templates render when a system prompt is given.

Text of users and tools is encoded with special tokens switched off, so it cannot forge the border of a turn.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from flightschool.digest import digest
from flightschool.errors import InputError, ModelFolderError
from flightschool.records import Record

__all__ = ["ChatFormat", "ChatTokenizer"]

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files that make a tokenizer folder; all but the first are optional."""

ROLES = ("system", "user", "assistant")


class ChatFormat(Record, frozen=True, kw_only=True):
    """How turns are written: ``start`` role ``after_role`` ``text`` ``end`` ``after_turn``."""

    name: str
    begin: str
    """Special token that opens a conversation (written before the system turn), or empty."""
    start: str
    """Special token before the role."""
    role_end: str
    """Special token after the role, or empty."""
    after_role: str
    """Plain text between role and content."""
    end: str
    """Special token that ends a turn: what the model samples last."""
    after_turn: str
    """Plain text after ``end``."""
    also_stop: tuple[str, ...] = ()
    """Further special tokens that end a completion, where the tokenizer knows them."""


_FORMATS = (
    ChatFormat(
        name="chatml",
        begin="",
        start="<|im_start|>",
        role_end="",
        after_role="\n",
        end="<|im_end|>",
        after_turn="\n",
        also_stop=("<|endoftext|>",),
    ),
    ChatFormat(
        name="llama3",
        begin="<|begin_of_text|>",
        start="<|start_header_id|>",
        role_end="<|end_header_id|>",
        after_role="\n\n",
        end="<|eot_id|>",
        after_turn="",
        also_stop=("<|end_of_text|>", "<|eom_id|>"),
    ),
)


class ChatTokenizer:
    """Implements ``protocols.Tokenizer`` for ChatML and Llama 3 models.

    Args:
        files: contents of the tokenizer's files by name (see ``TOKENIZER_FILES``); kept, so that a trained model is
            saved with the tokenizer it was trained with.
        where: what to call the source in errors.

    Raises:
        ModelFolderError: the files are no tokenizer, or it knows no chat format of ours.
    """

    def __init__(self, files: Mapping[str, bytes], where: str = "tokenizer.json") -> None:
        self.files = dict(files)
        table = _parse(self.files, where)
        added = {str(token["content"]): int(token["id"]) for token in table.get("added_tokens") or ()}
        self.format = _detect(added, where)
        control = {self.format.begin, self.format.start, self.format.role_end, self.format.end, *self.format.also_stop}
        text = json.dumps(table) if _guard(table, added, control) else self.files["tokenizer.json"].decode()
        self.backend_text = text
        """The tokenizer as the ``tokenizers`` library reads it, mended."""
        self._backend = _backend(text, where)
        self._backend.encode_special_tokens = True
        self._added = added
        self._control_ids = frozenset(added[name] for name in control if name in added)
        self._stops = tuple(added[name] for name in (self.format.end, *self.format.also_stop) if name in added)
        self._after_turn = self.encode(self.format.after_turn)

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """Read the tokenizer of a model folder.

        Raises:
            ModelFolderError: ``tokenizer.json`` is missing or no tokenizer, or the chat format is unknown.
        """
        files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
        return cls(files, where=str(folder / "tokenizer.json"))

    @property
    def num_ids(self) -> int:
        """One more than the largest id the tokenizer can give."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

    @property
    def vocabulary_digest(self) -> str:
        """Digest of which text each id stands for; equal digests: token ids mean the same."""
        return digest(sorted(self._backend.get_vocab(with_added_tokens=True).items()))

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Texts of the control tokens that turns are written with, in the order of their ids."""
        return tuple(self.control_text(token) for token in sorted(self._control_ids))

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant turn, the proper one first."""
        return self._stops

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; special tokens spelled out in it are encoded as the characters they are."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_with_control(self, text: str) -> tuple[int, ...]:
        """Ids of *trusted* text in which control tokens are meant: what a chat template has rendered."""
        ids: list[int] = []
        rest = text
        while rest:
            place, name = min(
                ((rest.find(name), name) for name in self._added if name and name in rest), default=(len(rest), "")
            )
            ids += self.encode(rest[:place])
            ids += [self._added[name]] if name else []
            rest = rest[place + len(name) :]
        return tuple(ids)

    def control_id(self, text: str) -> int | None:
        """Id of a control token by its text; None if it is none."""
        return self._added.get(text)

    def control_text(self, token_id: int) -> str:
        """Text of a control token; empty if it is none."""
        return next((text for text, known in self._added.items() if known == token_id), "")

    def decode(self, token_ids_T: Sequence[int]) -> str:
        """Text of ids, special tokens left out; bytes that are no UTF-8 become the replacement character."""
        return str(self._backend.decode(list(token_ids_T), skip_special_tokens=True))

    def turn(self, role: str, text: str) -> tuple[int, ...]:
        """Ids of one whole turn. The system turn also opens the conversation where the format wants it.

        Raises:
            InputError: the role is none of ``system``, ``user``, ``assistant``.
        """
        return (*self._open(role), *self.encode(text), self._stops[0], *self._after_turn)

    def open_assistant(self) -> tuple[int, ...]:
        """Ids that open an assistant turn to be sampled."""
        return self._open("assistant")

    def close_assistant(self, ended: bool) -> tuple[int, ...]:
        """Ids between a sampled completion and the next turn; adds the end of turn if it was not sampled."""
        return self._after_turn if ended else (self._stops[0], *self._after_turn)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - three roles; lives as long as the tokenizer, i.e. the process
    def _open(self, role: str) -> tuple[int, ...]:
        if role not in ROLES:
            raise InputError(f"unknown role {role!r}", expected=", ".join(ROLES), mend="render tools as user turns")
        begin = (self._added[self.format.begin],) if role == "system" and self.format.begin in self._added else ()
        role_end = (self._added[self.format.role_end],) if self.format.role_end else ()
        if role_end:
            return (*begin, self._added[self.format.start], *self.encode(role), *role_end, *self._after_role())
        return (*begin, self._added[self.format.start], *self.encode(role + self.format.after_role))

    def _after_role(self) -> tuple[int, ...]:
        return self.encode(self.format.after_role)


def _parse(files: Mapping[str, bytes], where: str) -> dict[str, Any]:
    if "tokenizer.json" not in files:
        raise ModelFolderError(
            "tokenizer.json is missing",
            where=where,
            expected="a fast tokenizer beside the weights",
            mend="save the model's tokenizer into the folder (AutoTokenizer.save_pretrained)",
        )
    try:
        return dict(json.loads(files["tokenizer.json"]))
    except (ValueError, TypeError) as error:
        raise _unreadable(error, where) from None


def _guard(table: dict[str, Any], added: Mapping[str, int], control: Set[str]) -> bool:
    """Close the ways by which text could become a control token; True if the tokenizer had to be changed for it."""
    loose = [token for token in table.get("added_tokens") or () if token["content"] in control and not token["special"]]
    for token in loose:
        token["special"] = True  # only special tokens can be switched off in text
    if table["model"].get("unk_token") in added:
        table["model"]["unk_token"] = None  # else a byte without a token of its own would become a special token
        return True
    return bool(loose)


def _backend(text: str, where: str) -> Backend:
    try:
        return Backend.from_str(text)
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception on bad files
        raise _unreadable(error, where) from None


def _unreadable(error: Exception, where: str) -> ModelFolderError:
    return ModelFolderError(
        f"tokenizer.json cannot be read: {error}",
        where=where,
        expected="a file of the tokenizers library",
        mend="save the tokenizer again",
    )


def _detect(added: Mapping[str, int], where: str) -> ChatFormat:
    for candidate in _FORMATS:
        wanted = [name for name in (candidate.start, candidate.role_end, candidate.end) if name]
        if all(name in added for name in wanted):
            return candidate
    raise ModelFolderError(
        "the tokenizer knows no chat format of ours",
        where=where,
        expected="the special tokens of ChatML (<|im_start|>, <|im_end|>) or Llama 3 (<|start_header_id|>, <|eot_id|>)",
        mend="use an instruction-tuned model of these formats, or add the ChatML tokens to the tokenizer",
    )
