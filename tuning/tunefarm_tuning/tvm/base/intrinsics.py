"""Register the tensor intrinsics of one target, and of no other.

``import tvm.s_tir.tensor_intrin`` builds the intrinsics of every target that TVM knows and takes 5 to 12 seconds,
most of it for CUDA; ``TuneContext`` imports it. A stand-in package with the same submodules is put in its
place first; then one submodule is imported, which takes a tenth of a second for x86.
"""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path
from types import ModuleType

import tvm.s_tir

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.bfloat16_intrinsics import register_bfloat16

_PACKAGE = "tvm.s_tir.tensor_intrin"


def import_intrinsics(target: Target, *, tensor_cores: bool = False) -> None:
    """Register what the schedule rules of `target` can refer to.

    Args:
        target: What will be scheduled or built for.
        tensor_cores: Whether CUDA's are wanted (seconds), and ours: only rules for tensor cores refer to them.
    """
    _put_stand_in()
    if target.kind == "llvm":
        importlib.import_module(f"{_PACKAGE}.{_cpu_family(target)}")
    elif target.kind == "cuda" and tensor_cores:
        importlib.import_module(f"{_PACKAGE}.cuda")
        register_bfloat16()


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
