"""Make TVM's target objects from our targets, and set TVM up in a process that builds kernels."""

from __future__ import annotations

import os

import tvm
import tvm_ffi

from tunefarm_tuning.target.cores import tuning_attributes
from tunefarm_tuning.target.dot_products import is_arm64
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base import lowering
from tunefarm_tuning.tvm.base.tvm_import import load_backend
from tunefarm_tuning.tvm.base.vector_math import rules

# Every process that builds kernels imports this module.
lowering.register()
rules.register()
# On a machine with a GPU, TVM would compile CUDA C itself, with NVRTC (see `device_code`). Read at every build.
os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"


def pipeline_name(target: Target) -> str:
    """Return the pipeline of a target: ``"cpu"`` or ``"gpu"``. Targets of one pipeline share workloads."""
    return "cpu" if target.kind in ("llvm", "c") else "gpu"


def tvm_target(target: Target) -> tvm.target.Target:
    """Return TVM's object for a target; the object for a GPU has a host."""
    attributes = target.to_json()
    if tuning := tuning_attributes(target):
        given = attributes.get("mattr", [])
        attributes["mattr"] = [*(given.split(",") if isinstance(given, str) else given), *tuning]
    load_backend(target.kind)
    machine = tvm.target.Target(attributes)
    if pipeline_name(target) == "cpu" or target.get("host") is not None:
        return machine
    return machine.with_host(tvm.target.Target("llvm"))


def cpu_features(target: Target) -> set[str]:
    """Return the features of an LLVM target's CPU, by LLVM's names; none for another target."""
    if target.kind != "llvm":
        return set()
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(tvm_target(target))
    return {str(name) for name in features}


def code_features(target: Target) -> set[str]:
    """Return the features of which LLVM may use instructions in a target's code, by LLVM's names.

    On Arm it makes none of AES, which a Raspberry Pi 4 lacks and LLVM's Cortex-A72, and TVM's tag for the board, have.
    """
    return cpu_features(target) - ({"aes"} if is_arm64(target) else set())
