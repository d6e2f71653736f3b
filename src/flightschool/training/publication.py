"""Ways of weights from the trainer to an engine: a *sink* that the trainer writes, a *feed* that the engine reads.

Every way is verified by the receiver against the digest that the sender put into the version.

================= ================================ ============================ ====================================
``publication``   for                              digest over                  shown by
================= ================================ ============================ ====================================
``shared_memory`` one machine, any two devices:    all bytes, by mebibyte       every run and test (``publisher``);
                  through the host's memory                                     not run yet between accelerators
``safetensors``   engines that load files          the file, SHA-256            tests; whole runs
``broadcast``     engine on another CUDA device    every tensor's words         tests over gloo; NCCL on CUDA devices
                  than the trainers                                             is the same calls, not run yet
``cuda_ipc``      trainer and engine on one CUDA   every tensor's words         not run yet: no such device was at hand
                  device
================= ================================ ============================ ====================================
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from flightschool.errors import InfrastructureError
from flightschool.records import WeightsVersion
from flightschool.training.folders import write_durably
from flightschool.training.publisher import WeightsReader, WeightsWriter
from flightschool.training.settings import TrainingSettings

__all__ = ["WeightsFeed", "WeightsSink", "make_feed", "make_sink", "words_digest"]

_MEETING_S = 600


class WeightsSink(Protocol):
    """The trainer's end."""

    def write(self, state: Mapping[str, Tensor], version: WeightsVersion) -> WeightsVersion:
        """Publish; returns the version with the digest of what was published."""
        ...


class WeightsFeed(Protocol):
    """The engine's end."""

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        """The parameters of exactly this version. Raises ``InfrastructureError`` unless they verify."""
        ...

    def release(self) -> None:
        """What was read is copied."""
        ...


def make_sink(settings: TrainingSettings, path: Path, state: Mapping[str, Tensor]) -> WeightsSink:
    """The trainer's end of the way that the settings name, by way of files at ``path``."""
    match settings.publication:
        case "shared_memory":
            return WeightsWriter(path, state)
        case "safetensors":
            return _FileSink(path)
        case "broadcast":
            return _BroadcastSink(path, settings)
        case "cuda_ipc":
            return _IpcSink(path)


def make_feed(settings: TrainingSettings, path: Path, like: Mapping[str, Tensor]) -> WeightsFeed:
    """The engine's end.

    Args:
        settings: name the way.
        path: as given to the sink.
        like: the engine's own parameters: names, shapes and device.
    """
    match settings.publication:
        case "shared_memory":
            return _MemoryFeed(path, spare=settings.spare_memory)
        case "safetensors":
            return _FileFeed(path)
        case "broadcast":
            return _BroadcastFeed(path, settings, like)
        case "cuda_ipc":
            return _IpcFeed(path)


def words_digest(state: Mapping[str, Tensor]) -> str:
    """Digest of tensors wherever they lie: names, and of each tensor's 64-bit words the sum and the sum by place.

    Runs at memory speed on the tensor's own device and notices torn, missing and exchanged parts. No signature.
    """
    total = hashlib.sha256()
    for name in sorted(state):
        raw = state[name].detach().contiguous().flatten().view(torch.uint8)
        words = torch.nn.functional.pad(raw, (0, -raw.numel() % 8)).view(torch.int64)
        places = torch.arange(1, words.numel() + 1, device=words.device)
        sums = [int(words.sum()), int((words * places).sum())]
        total.update(f"{name}\0{tuple(state[name].shape)}\0{sums}\n".encode())
    return "words64:" + total.hexdigest()


def _checked(found: str, version: WeightsVersion, where: Path) -> None:
    if found != version.digest:
        raise InfrastructureError(
            f"published weights of step {version.step} do not verify",
            where=str(where),
            expected=f"digest {version.digest}",
            mend="start the run again with --resume",
        )


class _MemoryFeed:
    """See ``publisher``; the file is mapped for one reading only.

    Args:
        path: of the file.
        spare: whether to give back the memory of what was read.
    """

    def __init__(self, path: Path, *, spare: bool) -> None:
        self._path, self._spare = path, spare
        self._reader: WeightsReader | None = None

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        """See ``WeightsFeed``."""
        self._reader = WeightsReader(self._path)
        return self._reader.read(version)

    def release(self) -> None:
        """The slot's memory is given back, unless it is kept for the next version but one."""
        if self._reader is not None and self._spare:
            self._reader.release()
        self._reader = None


# ------------------------------------------------------------------------------------------------ files


class _FileSink:
    def __init__(self, path: Path) -> None:
        self._folder = path.with_suffix(".published")
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, state: Mapping[str, Tensor], version: WeightsVersion) -> WeightsVersion:
        final = self._folder / f"{version.incarnation}-{version.step}.safetensors"
        fresh = final.with_suffix(".new")
        save_file({name: state[name].detach().cpu().contiguous() for name in state}, fresh)
        digest = _file_digest(fresh)
        fresh.replace(final)
        for old in self._folder.glob("*.safetensors"):
            if old != final:
                old.unlink()
        return msgspec.structs.replace(version, digest=digest)


class _FileFeed:
    def __init__(self, path: Path) -> None:
        self._folder = path.with_suffix(".published")

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        path = self._folder / f"{version.incarnation}-{version.step}.safetensors"
        try:
            _checked(_file_digest(path), version, path)
            return load_file(path)
        except OSError as error:
            raise InfrastructureError(
                f"published weights cannot be read: {error}",
                where=str(path),
                expected="the file that the trainer writes",
                mend="start the run again with --resume",
            ) from error

    def release(self) -> None:
        """The file is removed by the next version."""


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------------ broadcast


_Group: TypeAlias = Any  # the backends of gloo and NCCL have no common type in torch's stubs


def _meet(path: Path, settings: TrainingSettings, rank: int) -> _Group:
    """A process group of trainer and engine alone, beside whatever group the process has."""
    store = dist.FileStore(str(path.with_suffix(".meeting")), 2)  # type: ignore[attr-defined]
    wait = timedelta(seconds=_MEETING_S)
    if settings.device.startswith("cuda"):
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = wait
        return dist.ProcessGroupNCCL(store, rank, 2, options)
    return dist.ProcessGroupGloo(store, rank, 2, wait)


class _BroadcastSink:
    """Sends while the trainer's reply is under way: the engine only asks once it knows the version."""

    def __init__(self, path: Path, settings: TrainingSettings) -> None:
        self._path, self._settings = path, settings
        self._group: _Group = None
        self._sending: threading.Thread | None = None

    def write(self, state: Mapping[str, Tensor], version: WeightsVersion) -> WeightsVersion:
        if self._sending is not None:
            self._sending.join()  # of the version before: the engine has it
        own = {name: state[name].detach().contiguous() for name in state}
        self._sending = threading.Thread(target=self._send, args=(own,), daemon=True)
        published = msgspec.structs.replace(version, digest=words_digest(own))
        self._sending.start()
        return published

    def _send(self, state: Mapping[str, Tensor]) -> None:
        self._group = self._group or _meet(self._path, self._settings, 0)
        for tensor in state.values():
            _broadcast(self._group, tensor)


class _BroadcastFeed:
    def __init__(self, path: Path, settings: TrainingSettings, like: Mapping[str, Tensor]) -> None:
        self._path, self._settings = path, settings
        self._buffers = {name: torch.empty_like(tensor, requires_grad=False) for name, tensor in like.items()}
        self._group: _Group = None

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        self._group = self._group or _meet(self._path, self._settings, 1)
        for tensor in self._buffers.values():
            _broadcast(self._group, tensor)
        _checked(words_digest(self._buffers), version, self._path)
        return self._buffers

    def release(self) -> None:
        """The buffers are used again."""


def _broadcast(group: _Group, tensor: Tensor) -> None:
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([tensor], options).wait()


# ------------------------------------------------------------------------------------------------ one CUDA device


class _IpcSink:
    """Hands over handles of the trainer's own tensors; they are read before the trainer is asked anything else."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".handles")

    def write(self, state: Mapping[str, Tensor], version: WeightsVersion) -> WeightsVersion:
        own = {name: state[name].detach() for name in state}
        if not all(tensor.is_cuda for tensor in own.values()):
            raise InfrastructureError(
                "weights on the CPU have no CUDA handles",
                where="training.publication",
                expected="device = 'cuda'",
                mend="publish through shared memory",
            )
        torch.cuda.synchronize()
        write_durably(self._path, bytes(ForkingPickler.dumps(own)))
        return msgspec.structs.replace(version, digest=words_digest(own))


class _IpcFeed:
    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".handles")

    def read(self, version: WeightsVersion) -> dict[str, Tensor]:
        state: dict[str, Tensor] = pickle.loads(self._path.read_bytes())  # written by our own trainer, for us alone
        _checked(words_digest(state), version, self._path)
        return state

    def release(self) -> None:
        """The handles die with what was read."""
