"""Register the tensor intrinsics of one target only; define those of bfloat16 for NVIDIA's tensor cores.

``import tvm.s_tir.tensor_intrin`` builds the intrinsics of every target that TVM knows and takes 5 to 12 seconds,
most of it for CUDA; ``TuneContext`` imports it. A stand-in package with the same submodules is put in its
place first; then one submodule is imported, which takes a tenth of a second for x86, and about a second for CUDA.
"""

from __future__ import annotations

import importlib
import inspect
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import tvm.s_tir

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.tvm_import import load_backend

_PACKAGE = "tvm.s_tir.tensor_intrin"


def import_intrinsics(target: Target, *, tensor_cores: bool = False) -> None:
    """Register the intrinsics for the schedule rules of `target`; CUDA's, which take seconds, and ours only for `tensor_cores`."""
    _put_stand_in()
    if target.kind == "llvm":
        importlib.import_module(f"{_PACKAGE}.{_cpu_family(target)}")
    elif target.kind == "cuda" and tensor_cores:
        load_backend(target.kind)
        with modules_by_file():
            importlib.import_module(f"{_PACKAGE}.cuda")
            register_bfloat16()


@contextmanager
def modules_by_file() -> Iterator[None]:
    """Let `inspect.getmodule` remember the module of each file during the block.

    Each definition in TVMScript asks for the whole stack, with each frame's module. Python does not remember that a frame has
    none, which is so of the frames of an import, and looks through all modules again: nine tenths of the time.
    """
    find = inspect.getmodule
    known: dict[str, ModuleType | None] = {}

    def remember(object: object, _filename: str | None = None) -> ModuleType | None:  # noqa: A002  (as `inspect` calls it)
        code = getattr(object, "f_code", None)
        if code is None:
            return find(object, _filename)
        if code.co_filename not in known:
            known[code.co_filename] = find(object, _filename)
        return known[code.co_filename]

    inspect.getmodule = remember
    try:
        yield
    finally:
        inspect.getmodule = find


def _put_stand_in() -> None:
    if _PACKAGE in sys.modules:
        return
    package = ModuleType(_PACKAGE, "Stand-in: holds the submodules, imports none of them.")
    package.__path__ = [str(Path(str(tvm.s_tir.__file__)).parent / "tensor_intrin")]
    sys.modules[_PACKAGE] = package
    tvm.s_tir.tensor_intrin = package


def _cpu_family(target: Target) -> str:
    machine = str(target.get("mtriple") or platform.machine()).lower()
    if machine.startswith(("aarch64", "arm")):
        return "arm_cpu"
    if machine.startswith("riscv"):
        return "riscv_cpu"
    return "x86"


FIRST_ARCHITECTURE = 80
"""Ampere, whose tensor cores are the first with bfloat16."""
_TYPE = "bfloat16"
_SUM = "float32"
_SHARED = "shared.dyn"


@cache
def register_bfloat16() -> None:
    """Register the tensor intrinsics of bfloat16 in this process, by the names of `wmma_group` and `mma_group`.

    TVM 0.27 has them for float16 only. A fragment of bfloat16 lies in registers as one of float16 does (PTX ISA, "Matrix
    Fragments"), and ``ldmatrix`` moves any 16 bits: so TVM's makers of intrinsics are asked for the type, and only the name of
    the instruction differs. Sums are float32, the only type that the hardware has for them.
    """
    from tvm.s_tir import TensorIntrin
    from tvm.s_tir.tensor_intrin import cuda

    for transposed in (False, True):
        group = wmma_group(transposed=transposed)
        if not transposed:  # the left matrix is never transposed
            load_a = cuda.get_wmma_load_intrin(16, 16, 16, _TYPE, _SHARED, is_b=False, is_col_major=False)
            TensorIntrin.register(group["load_a"], *load_a)
        load_b = cuda.get_wmma_load_intrin(16, 16, 16, _TYPE, _SHARED, is_b=True, is_col_major=transposed)
        TensorIntrin.register(group["load_b"], *load_b)
        compute = cuda.get_wmma_sync_intrin(16, 16, 16, _TYPE, _SUM, b_transposed=transposed)
        TensorIntrin.register(group["compute"], *compute)
    group = mma_group()
    # One ldmatrix moves four 8x8 tiles: of the left matrix 32 rows, of the right one 32 columns.
    for name, is_b in (("load_a", False), ("load_b", True)):
        load = cuda.get_mma_load_intrin(32, 32, 8, _TYPE, _SHARED, is_b=is_b, is_col_major=False)
        TensorIntrin.register(group[name], *load)
    compute = cuda.get_mma_sync_intrin(16, 8, 8, _TYPE, _SUM, b_transposed=False)
    TensorIntrin.register(group["compute"], *compute)


def wmma_group(*, transposed: bool) -> dict[str, str]:
    """Return the names of the intrinsics of a 16x16x16 product, for TVM's rule; the right matrix may be transposed.

    What fills and stores float32 is TVM's own.
    """
    suffix = "_trans" if transposed else ""
    return {
        "init": "wmma_fill_16x16x16_f32",
        "load_a": "wmma_load_16x16x16_bf16_a_shared_dyn",
        "load_b": f"wmma_load_16x16x16_bf16_b{suffix}_shared_dyn",
        "compute": f"wmma_sync_16x16x16_bf16bf16f32{suffix}",
        "store": "wmma_store_16x16x16_f32_shared",
    }


def mma_group() -> dict[str, str]:
    """Return the names of the intrinsics of a 16x8x8 product, the only size that TVM's asynchronous-copy rule supports."""
    return {
        "init": "mma_init_m16n8k8_f32",
        "load_a": "mma_load_m16n8k8_bf16_A_shared_dyn",
        "load_b": "mma_load_m16n8k8_bf16_B_shared_dyn",
        "compute": "mma_sync_m16n8k8_bf16bf16f32",
        "store": "mma_store_m16n8k8_f32_global",
    }
