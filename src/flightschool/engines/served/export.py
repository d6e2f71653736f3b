"""Published weights as model folders, for servers that load by path.

``python -m flightschool.engines.served.export MODEL OUT`` writes a copy of a model whose output head is a tensor of its
own, for servers that keep a tied head as it was at their start (see ``vllm``).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.engines.fresh import fresh_folder
from flightschool.engines.requests import check_state
from flightschool.errors import InfrastructureError
from flightschool.records import WeightsVersion

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FolderExporter", "untied_copy"]

_HEAD = "lm_head.weight"
_KEPT = 2  # the folder that is served, and the one before: a server that restarts reads it again
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class FolderExporter:
    """Writes each version as a folder of its own beside copies of the model's other files.

    Args:
        model: folder of the model that the run began with; configuration and tokenizer are taken from it.
        root: where folders are written; the server must see it under the same path.
    """

    def __init__(self, model: Path, root: Path) -> None:
        self._model = model
        self._root = root
        self._written: list[Path] = []
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._unties = False

    def untie(self) -> None:
        """From now on write the output head as a tensor of its own, as the server has it."""
        self._unties = True

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Raises ``InputError`` unless names and shapes are those of the model's own weights."""
        import torch

        if self._shapes is None:
            self._shapes = _shapes(self._model)
        wanted = {name: torch.empty(shape, device="meta") for name, shape in self._shapes.items()}
        given = {name: tensor for name, tensor in state.items() if name in wanted or not _may_be_tied(name)}
        check_state({name: tensor for name, tensor in wanted.items() if name in given or not _may_be_tied(name)}, given)

    def write(self, version: WeightsVersion, state: Mapping[str, Tensor]) -> Path:
        """The folder of a version, whole or not at all.

        Raises:
            InfrastructureError: it cannot be written.
        """
        from safetensors.torch import save_file

        folder = self._root / f"incarnation-{version.incarnation}-step-{version.step:06d}"
        try:
            with fresh_folder(folder) as fresh:
                for file in sorted(self._model.iterdir()):
                    if file.is_file() and file.suffix not in _WEIGHTS and not file.name.endswith(".index.json"):
                        shutil.copyfile(file, fresh / file.name)
                tensors = {name: tensor.detach().to("cpu").contiguous() for name, tensor in state.items()}
                if self._unties:
                    _untie(fresh, tensors)
                save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})
        except OSError as error:
            raise InfrastructureError(
                f"published weights cannot be written: {error}",
                where=str(folder),
                expected="room for two copies of the model",
                mend="free space, or name another folder in engine.publish_to",
            ) from error
        self._written = [known for known in self._written if known != folder] + [folder]
        return folder

    def prune(self) -> None:
        """Remove folders that no server reads any more."""
        for folder in self._written[:-_KEPT]:
            shutil.rmtree(folder, ignore_errors=True)
        self._written = self._written[-_KEPT:]

    def clear(self) -> None:
        """Remove all folders."""
        for folder in self._written:
            shutil.rmtree(folder, ignore_errors=True)
        self._written = []


def untied_copy(model: Path, out: Path) -> None:
    """A copy of a model folder whose output head is a tensor of its own.

    Raises:
        ModelFolderError: the folder cannot be read.
        InfrastructureError: ``out`` cannot be written.
    """
    from flightschool.engines.folders import read_state

    exporter = FolderExporter(model, out.parent)
    exporter.untie()
    state = read_state(model)
    written = exporter.write(WeightsVersion(run="", incarnation=0, step=0), state)
    written.rename(out)


def _untie(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Give the head a tensor of its own, and say so in the configuration."""
    if _HEAD not in tensors:
        tensors[_HEAD] = tensors["model.embed_tokens.weight"].clone()
    path = folder / "config.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(table | {"tie_word_embeddings": False}, indent=2), encoding="utf-8")


def _may_be_tied(name: str) -> bool:
    """Written or left out as the writer likes, where input and output embeddings are one."""
    return name == _HEAD


def _shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights of a folder, from the files' headers alone."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        shapes |= {name: tuple(row["shape"]) for name, row in header.items() if name != "__metadata__"}
    return {name: shape for name, shape in shapes.items() if not name.endswith("rotary_emb.inv_freq")}


if __name__ == "__main__":
    untied_copy(Path(sys.argv[1]), Path(sys.argv[2]))
