"""Which CPU features a compiled library may use, by LLVM's names."""

from __future__ import annotations

import tvm_ffi

from tunefarm_tuning.artifact.loader import KNOWN_CPU_FEATURES
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target


def cpu_features(target: Target) -> list[str]:
    """Return the features of the target's CPU (of its host's, for a GPU) that the loader knows how to look for."""
    if target.kind != "llvm":
        return []
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(tvm_target(target))
    return sorted(str(name) for name in features if str(name) in KNOWN_CPU_FEATURES)
