"""Child process: describe this machine by LLVM and CUDA.

Handlers:

- `host_target`: {} -> this machine's CPU as a target, in the form of TVM's dicts.
- `look_for_gpu`: {} -> ``exists``: whether TVM can use a GPU; ``why``: why not, else empty.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.target import Target, codegen

from tunefarm_tuning.artifact.cuda_runtime import why_no_gpu
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.target.host import cpu_flags, num_cores

_CHECKED_FEATURES = ("avx", "fma", "f16c", "amx", "bmi", "gfni", "vaes", "vpclmulqdq")
"""Prefixes of vector features: a kernel crashes with SIGILL if LLVM assumes one that the machine lacks."""


def host_target(_params: dict[str, Any]) -> dict[str, Any]:
    """Return this machine's CPU, its physical cores, and the features that are switched off."""
    cpu = str(codegen.llvm_get_system_cpu())
    config: dict[str, Any] = {"kind": "llvm", "mcpu": cpu, "num-cores": num_cores()}
    missing = _missing_features(cpu)
    if missing:
        config["mattr"] = missing
    return config


def look_for_gpu(_params: dict[str, Any]) -> dict[str, Any]:
    """Tell whether TVM can use a GPU of this machine."""
    exists = bool(tvm.cuda(0).exist)
    return {"exists": exists, "why": "" if exists else why_no_gpu()}


def _missing_features(cpu: str) -> list[str]:
    """Return the features that LLVM assumes of a CPU and that the system, often a virtual machine, has switched off."""
    flags = cpu_flags()
    present = {_letters(flag) for flag in flags} | {"bmi"} & {
        _letters(flag).removesuffix("1") for flag in flags
    }
    if not present:
        return []
    assumed = codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": cpu}))
    return sorted(
        f"-{name}"
        for name in map(str, assumed)
        if name.startswith(_CHECKED_FEATURES) and _letters(name) not in present
    )


def _letters(name: str) -> str:
    """Return a feature's name without the punctuation in which LLVM and Linux differ."""
    return name.replace("_", "").replace("-", "").replace(".", "")


HANDLERS: Handlers = {"host_target": host_target, "look_for_gpu": look_for_gpu}
