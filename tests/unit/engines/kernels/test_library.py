"""How the kernels are built, kept, trusted and done without."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.needs import reason, skip
from tests.unit.engines.kernels.test_attention import compare, forest

from flightschool.compiling import compilers
from flightschool.engines.kernels import SWITCH, add_product, find_kernels
from flightschool.engines.kernels import library as loading

pytestmark = pytest.mark.skipif(not compilers(), reason=reason("a C compiler", "install cc, gcc or clang"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, whose kernels are forgotten afterwards."""
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", str(tmp_path))
    find_kernels.cache_clear()
    yield tmp_path / "native"
    find_kernels.cache_clear()


def test_they_are_built_once_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_kernels()
    (built,) = cache.iterdir()
    assert found.library is not None
    assert built.name.startswith("kernels-")
    assert built.name[-11:-3] in found.found
    find_kernels.cache_clear()
    monkeypatch.setattr(loading, "_build", lambda *_: "built again")
    assert find_kernels().library is not None


@pytest.mark.parametrize("vectors", ["AVX512", "AVX2", "DEFAULT"])
def test_narrower_vectors_compute_the_same(cache: Path, vectors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ["DEFAULT", "AVX2", "AVX512"]
    here = torch.backends.cpu.get_cpu_capability()
    if here not in order or order.index(vectors) > order.index(here):
        skip(vectors, f"a processor that has it; this one has {here}")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: vectors)
    assert find_kernels().width == {"AVX512": 16, "AVX2": 8, "DEFAULT": 4}[vectors]
    for seed in range(4):
        spans, num = forest(random.Random(seed))
        compare(spans, num, num, (9, 3), 20)
    a, b = torch.randn(50, 210), torch.randn(210, 70)
    torch.testing.assert_close(add_product(torch.zeros(50, 70), a, b), a @ b, atol=1e-3, rtol=1e-3)


def test_they_can_be_switched_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert find_kernels() == loading.Kernels(None, "switched off by FLIGHTSCHOOL_KERNELS")
    assert not cache.exists()


def test_without_a_compiler_torch_does_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_kernels().library is None
    assert "no C compiler" in find_kernels().found


def test_what_a_compiler_says_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "cc").write_text("#!/bin/sh\necho 'unknown processor' >&2\nexit 1\n")
    (broken / "cc").chmod(0o700)
    monkeypatch.setenv("PATH", str(broken))
    assert find_kernels().found == "the kernels could not be built: unknown processor"
    assert not list(cache.iterdir())


def test_a_build_that_others_may_write_to_is_not_loaded(cache: Path) -> None:
    find_kernels()
    (built,) = cache.iterdir()
    built.unlink()  # this process has it loaded: another file in its place
    built.write_bytes(b"not a library")
    built.chmod(0o666)
    find_kernels.cache_clear()
    assert find_kernels().library is not None
    assert built.read_bytes() != b"not a library"
    assert not built.stat().st_mode & 0o022


def test_what_does_not_load_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(target: Path, flags: object) -> str:
        target.write_bytes(b"not a library")
        target.chmod(0o700)
        return ""

    monkeypatch.setattr(loading, "_build", build)
    assert find_kernels().library is None
    assert "could not be loaded" in find_kernels().found
