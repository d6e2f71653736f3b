from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from flightschool.errors import NotFoundError, StoreError
from flightschool.training.checkpoints import newest_whole, read_checkpoint, set_aside, write_manifest
from flightschool.training.folders import RunFolder, durable_folder
from flightschool.training.messages import Manifest
from flightschool.training.sums import block_digest, file_digest
from flightschool.training.trainer_base import write_checkpoint

Damage = Callable[[Path], object]


def made(root: Path, *steps: int) -> RunFolder:
    folder = RunFolder(root)
    for step in steps:
        with durable_folder(folder.checkpoint(step)) as fresh:
            (fresh / "model.safetensors").write_bytes(bytes(range(200)))
            (fresh / "optimizer.pt").write_bytes(b"")
            manifest = Manifest(run="r", incarnation=0, step=step, lineage=((0, step),), consumed=())
            write_manifest(fresh, manifest)
    return folder


def cut(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-3])


def rot(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[100] ^= 1
    (folder / "model.safetensors").write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "manifest.json: Input data was truncated": cut("manifest.json"),
    "manifest.json: .*No such file": lambda folder: (folder / "manifest.json").unlink(),
    "model.safetensors has 197 bytes of 200": cut("model.safetensors"),
    "optimizer.pt: No such file": lambda folder: (folder / "optimizer.pt").unlink(),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_the_one_before_a_damaged_checkpoint_is_found(tmp_path: Path, told: str) -> None:
    folder = made(tmp_path, 2, 4)
    DAMAGES[told](folder.checkpoint(4))
    newest = folder.newest_checkpoint()
    assert newest is not None
    assert newest[1].step == 2
    with pytest.raises(StoreError, match=f"step-000004 is damaged: {told}") as error:
        folder.kept_checkpoint(4)
    assert error.value.where == str(folder.checkpoint(4))
    assert folder.kept_checkpoint(None) == folder.checkpoint(2)


def test_rot_is_seen_by_the_check_sum_alone(tmp_path: Path) -> None:
    folder = made(tmp_path, 2, 4)
    rot(folder.checkpoint(4))
    assert read_checkpoint(folder.checkpoint(4), thorough=False).step == 4
    found, (damaged,) = newest_whole(folder.checkpoints(), thorough=True)
    assert found is not None
    assert found[1].step == 2
    assert "model.safetensors has another check sum" in damaged.what
    set_aside(folder.checkpoint(4))
    assert folder.checkpoints() == [folder.checkpoint(2)]
    with pytest.raises(NotFoundError):
        folder.kept_checkpoint(4)


def test_where_all_are_damaged_one_error_says_what_can_be_done(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).newest_checkpoint() is None
    folder = made(tmp_path, 2, 4)
    for step in (2, 4):
        cut("model.safetensors")(folder.checkpoint(step))
    with pytest.raises(StoreError, match=r"no checkpoint of the run .*step-000004.*step-000002") as error:
        folder.newest_checkpoint()
    assert error.value.exit_code == 2
    assert "step 0" in error.value.mend


def test_checkpoints_of_older_versions_name_no_files_and_are_read(tmp_path: Path) -> None:
    folder = made(tmp_path, 2)
    path = folder.checkpoint(2) / "manifest.json"
    table = msgspec.json.decode(path.read_bytes())
    assert [file["name"] for file in table.pop("files")] == ["model.safetensors", "optimizer.pt"]
    path.write_bytes(msgspec.json.encode(table))
    assert read_checkpoint(folder.checkpoint(2), thorough=True).files == ()


def test_the_sum_of_a_file_is_that_of_its_blocks(tmp_path: Path) -> None:
    data = np.arange(3 << 20, dtype=np.uint8)
    (tmp_path / "f").write_bytes(data.tobytes())
    assert file_digest(tmp_path / "f") == block_digest(data)
    (tmp_path / "f").write_bytes(data[:-5].tobytes())
    data[-5:] = 0
    assert file_digest(tmp_path / "f") == block_digest(data)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process end at 64 KiB, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("num_weights", "num_moments"), [(1, 1 << 18), (1 << 18, 1)])
@pytest.mark.usefixtures("small_files")
def test_a_checkpoint_that_cannot_be_written_is_one_error(tmp_path: Path, num_weights: int, num_moments: int) -> None:
    folder = made(tmp_path, 2)
    manifest = Manifest(run="r", incarnation=0, step=4, lineage=((0, 4),), consumed=())
    with pytest.raises(StoreError, match=r"checkpoint step-000004 cannot be written: \w+Error: ") as raised:
        write_checkpoint(
            folder.checkpoint(4), {"w": torch.zeros(num_weights)}, {"state": torch.zeros(num_moments)}, manifest
        )
    assert "MB are free" in raised.value.expected
    assert "--resume" in raised.value.mend
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]
