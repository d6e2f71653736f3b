"""The compiled kernels: found, built, loaded and tried once a process.

``FLIGHTSCHOOL_KERNELS=off`` does without them; so does a machine without a C compiler. What they do then is done by
torch, with equal results and in more time.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch

from flightschool.compiling import compilers, digest_of_sources, find_build, run_compiler

__all__ = ["SWITCH", "Call", "Kernels", "Product", "find_kernels", "kernel_library", "serves"]

SWITCH: Final = "FLIGHTSCHOOL_KERNELS"
_SOURCES: Final = tuple(Path(__file__).parent / name for name in ("attention.c", "products.c", "elementwise.c"))
_HEADER: Final = Path(__file__).parent / "vectors.h"
_NAME: Final = "kernels"
_FLAGS: Final = ("-std=gnu11", "-O3", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-Wall")
_VECTORS: Final = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
}
"""What torch found that this processor can do → how to use it."""

_Pointer, _Int = ctypes.c_void_p, ctypes.c_int64

_KINDS: Final = {"i": _Int, "p": _Pointer, "f": ctypes.c_float}
_ELEMENTWISE: Final = {
    "rms_norm": "iiipipfpp",
    "rms_norm_backward": "iiipippppp",
    "gate": "iiipipip",
    "gate_backward": "iiipipipppp",
    "rotate": "iiiipippip",
}
"""Functions of ``elementwise.c`` → kinds of their arguments."""


class Call(ctypes.Structure):
    """``Call`` of ``attention.c``."""

    _fields_ = (
        ("num_units", _Int),
        ("num_first", _Int),
        ("num_heads", _Int),
        ("num_kv", _Int),
        ("head_size", _Int),
        ("num_threads", _Int),
        ("units", _Pointer),
        ("runs", _Pointer),
        ("q", _Pointer),
        ("q_token", _Int),
        ("keys", _Pointer * 2),
        ("values", _Pointer * 2),
        ("key_token", _Int * 2),
        ("key_head", _Int * 2),
        ("value_token", _Int * 2),
        ("value_head", _Int * 2),
        ("num_new", _Int),
        ("places", _Pointer),
        ("new_keys", _Pointer),
        ("new_values", _Pointer),
        ("new_key_token", _Int),
        ("new_value_token", _Int),
        ("out", _Pointer),
        ("log", _Pointer),
        ("grad", _Pointer),
        ("grad_token", _Int),
        ("num_keys", _Int),
        ("dq", _Pointer),
        ("dk", _Pointer),
        ("dv", _Pointer),
    )


class Product(ctypes.Structure):
    """``Product`` of ``products.c``."""

    _fields_ = (
        ("num_rows", _Int),
        ("num_columns", _Int),
        ("depth", _Int),
        ("num_threads", _Int),
        ("adds", _Int),
        ("a", _Pointer),
        ("a_row", _Int),
        ("a_depth", _Int),
        ("b", _Pointer),
        ("b_depth", _Int),
        ("c", _Pointer),
        ("c_row", _Int),
        ("scratch", _Pointer),
    )


@dataclass(frozen=True)
class Kernels:
    """What was found."""

    library: ctypes.CDLL | None
    found: str
    """In a few words: which, or why not."""
    width: int = 0
    """Numbers of a vector."""
    largest_head: int = 0


@lru_cache(maxsize=1)
def find_kernels() -> Kernels:
    """The kernels, compiled on the first call and looked up on no other: a pass asks a few hundred times."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return Kernels(None, f"switched off by {SWITCH}")
    if not hasattr(os, "geteuid"):
        return Kernels(None, "not built on this system")
    flags = (*_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ()))
    digest = digest_of_sources([*_SOURCES, _HEADER], flags)
    built, said = find_build(f"{_NAME}-{digest}.so", os.geteuid(), lambda target: _build(target, flags))
    if built is None:
        return Kernels(None, f"the kernels could not be built: {said}")
    try:
        return _load(built, digest)
    except OSError as error:
        return Kernels(None, f"the kernels could not be loaded: {error}")


def kernel_library() -> ctypes.CDLL:
    """Their library, where ``serves`` has said that there is one."""
    library = find_kernels().library
    assert library is not None, "ask first whether the kernels serve"
    return library


def serves(x: torch.Tensor) -> bool:
    """Whether the kernels compute with tensors like this one: float32 on a CPU."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and find_kernels().library is not None


def _build(target: Path, flags: tuple[str, ...]) -> str:
    """Compiled by the first compiler whose outcome loads here. Returns why by none."""
    said = ""
    for compiler in compilers():
        said = _compile(compiler, target, flags)
        if not said:
            target.chmod(0o700)
            try:
                _load(target, "")
            except OSError as error:
                said = str(error)
            else:
                return ""
    return said


def _compile(compiler: str, target: Path, flags: tuple[str, ...]) -> str:
    parts = {str(source): str(target.with_name(source.stem + ".o")) for source in _SOURCES}
    for source, part in parts.items():
        if said := run_compiler([compiler, *flags, "-c", source, "-o", part]):
            return said
    # Threads are torch's own: what is linked names no library for them, and finds the one that torch has loaded.
    return run_compiler([compiler, "-shared", *parts.values(), "-o", str(target), "-lm"])


def _load(path: Path, digest: str) -> Kernels:
    """Raises ``OSError``: it is not of this source, or does not run here."""
    library = ctypes.CDLL(str(path))
    names = ("size_of_call", "size_of_product", "width_of_vectors", "largest_head")
    call, product, width, largest_head = (_number(library, name)() for name in names)
    if (call, product) != (ctypes.sizeof(Call), ctypes.sizeof(Product)):
        raise OSError(f"calls have {call} and {product} bytes there, not what they have here")
    for act in (library.attend, library.attend_backward):
        act.argtypes, act.restype = [ctypes.POINTER(Call)], None
    library.multiply.argtypes, library.multiply.restype = [ctypes.POINTER(Product)], None
    _number(library, "size_of_scratch").argtypes = [_Int]
    for name, kinds in _ELEMENTWISE.items():
        function = getattr(library, name)
        function.argtypes, function.restype = [_KINDS[kind] for kind in kinds], None
    return Kernels(library, f"native kernels {digest[-8:]}, vectors of {width}", width, largest_head)


def _number(library: ctypes.CDLL, name: str) -> Any:
    found = getattr(library, name)
    found.restype = _Int
    return found
