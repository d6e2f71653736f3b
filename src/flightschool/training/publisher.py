"""Weights from the trainer to engines: one file in shared memory, two slots, verified by the receiver.

The writer fills the slot that does not hold the newest version, then names it in the header; a reader maps the file,
copies nothing, and checks the sum of the slot it is about to use. A slot that is being written, or was torn by a
crash, fails its check and is never served. The file belongs to the run: whoever starts the run creates and removes it.

The check sum is 64-bit wrapping addition over blocks of a mebibyte, and SHA-256 over the block sums: it runs at memory
speed (half a gigabyte in well under a second) and notices torn, missing and exchanged blocks. It is no signature.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
import torch
from torch import Tensor

from flightschool.errors import InfrastructureError
from flightschool.records import Record, WeightsVersion
from flightschool.training.sums import block_digest

__all__ = ["WeightsReader", "WeightsWriter", "check_served"]

_HEADER_BYTES = 1 << 20
_ALIGN = 1 << 20


class _Tensor(Record, frozen=True, kw_only=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class _Layout(Record, frozen=True, kw_only=True):
    tensors: tuple[_Tensor, ...]
    slot_bytes: int


class _Header(Record, frozen=True, kw_only=True):
    """Rewritten as a whole for every version; a torn header fails to decode or names a slot that fails its sum."""

    layout: _Layout
    slot: int
    version: WeightsVersion


class WeightsWriter:
    """The trainer's end.

    Args:
        path: the file; an old one is replaced.
        state: name → parameter; order and shapes stay as they are for the life of the file.
    """

    def __init__(self, path: Path, state: Mapping[str, Tensor]) -> None:
        self._layout = _plan(state)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, _HEADER_BYTES + 2 * self._layout.slot_bytes)
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._slot = 1

    def write(self, state: Mapping[str, Tensor], version: WeightsVersion) -> WeightsVersion:
        """Publish; returns the version with the digest of what was written."""
        slot = 1 - self._slot
        data = _slot_view(self._map, slot, self._layout)
        for row in self._layout.tensors:
            source = state[row.name].detach().to("cpu").contiguous().view(torch.uint8).flatten()
            target = torch.from_numpy(data[row.offset : row.offset + row.num_bytes])
            target.copy_(source)
        published = WeightsVersion(
            run=version.run, incarnation=version.incarnation, step=version.step, digest=block_digest(data)
        )
        _write_header(self._map, _Header(layout=self._layout, slot=slot, version=published))
        self._slot = slot
        return published


class WeightsReader:
    """An engine's end. The tensors it returns look into the file: use or copy them before the next but one version."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            raise InfrastructureError(
                f"published weights cannot be opened: {error}",
                where=str(path),
                expected="the file that the trainer writes",
                mend="start the run again with --resume",
            ) from error

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        """The parameters of exactly this version.

        Raises:
            InfrastructureError: the file holds another version, or its bytes do not have the version's digest.
        """
        header = _read_header(self._map, self._path)
        data = _slot_view(self._map, header.slot, header.layout)
        if header.version != version or block_digest(data) != version.digest:
            raise InfrastructureError(
                f"published weights are of step {header.version.step} and do not verify",
                where=str(self._path),
                expected=f"step {version.step} with digest {version.digest}",
                mend="start the run again with --resume",
            )
        return {row.name: _tensor(data, row) for row in header.layout.tensors}

    def release(self) -> None:
        """Give back the memory of the slot that was read, once its tensors are copied; its version is gone then."""
        header = _read_header(self._map, self._path)
        if hasattr(mmap, "MADV_REMOVE"):
            start = _HEADER_BYTES + header.slot * header.layout.slot_bytes
            with contextlib.suppress(OSError):  # a file system without holes keeps the pages: only memory is lost
                self._map.madvise(mmap.MADV_REMOVE, start, header.layout.slot_bytes)

    def __enter__(self) -> WeightsReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._map  # tensors that still look into it keep the mapping alive


@torch.no_grad()
def check_served(model: torch.nn.Module, state: Mapping[str, Tensor], version: WeightsVersion) -> None:
    """Raise unless a model holds exactly the bytes of a verified state: what is served has the version's digest.

    Args:
        model: that an engine computes with.
        state: as a feed returned it, on whichever device.
        version: of it.

    Raises:
        InfrastructureError: a parameter differs.
    """
    served = dict(model.named_parameters())
    wrong = [name for name, tensor in state.items() if not torch.equal(served[name].cpu(), tensor.cpu())]
    if wrong or served.keys() != state.keys():
        raise InfrastructureError(
            f"the engine does not serve step {version.step}: {len(wrong)} tensor(s) differ, for instance {wrong[:1]}",
            where="engine",
            expected=f"weights with digest {version.digest}",
            mend="start the run again with --resume",
        )


# ------------------------------------------------------------------------------------------------ layout


def _plan(state: Mapping[str, Tensor]) -> _Layout:
    rows, offset = [], 0
    for name, tensor in state.items():
        num_bytes = tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        rows.append(_Tensor(name=name, dtype=dtype, shape=tuple(tensor.shape), offset=offset, num_bytes=num_bytes))
        offset += -(-num_bytes // 64) * 64
    return _Layout(tensors=tuple(rows), slot_bytes=max(_ALIGN, -(-offset // _ALIGN) * _ALIGN))


def _slot_view(map_: mmap.mmap, slot: int, layout: _Layout) -> np.ndarray:
    start = _HEADER_BYTES + slot * layout.slot_bytes
    return np.frombuffer(map_, dtype=np.uint8, count=layout.slot_bytes, offset=start)


def _tensor(data: np.ndarray, row: _Tensor) -> Tensor:
    raw = torch.from_numpy(data[row.offset : row.offset + row.num_bytes])
    return raw.view(getattr(torch, row.dtype)).view(row.shape)


def _write_header(map_: mmap.mmap, header: _Header) -> None:
    data = msgspec.msgpack.encode(header)
    map_[8 : 8 + len(data)] = data
    map_[:8] = len(data).to_bytes(8, "little")


def _read_header(map_: mmap.mmap, path: Path) -> _Header:
    length = int.from_bytes(map_[:8], "little")
    try:
        return msgspec.msgpack.decode(map_[8 : 8 + length], type=_Header)
    except msgspec.DecodeError as error:
        raise InfrastructureError(
            "the header of the published weights is broken",
            where=str(path),
            expected="a header written by the trainer",
            mend="start the run again with --resume",
        ) from error
