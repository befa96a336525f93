"""The CPUs that LLVM knows, with their features."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target


def cpus_of(triple: str) -> Iterator[tuple[str, Target, set[str]]]:
    """Yield the name, the target and LLVM's features of each CPU of an architecture."""
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")
    machine = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    for name in tvm_ffi.get_global_func("target.llvm_get_cpu_archlist")(machine):
        target = Target.from_json({"kind": "llvm", "mcpu": str(name), "mtriple": triple})
        try:
            has = {str(feature) for feature in features(tvm_target(target))}
        except Exception:  # (a name of another architecture)
            continue
        yield str(name), target, has
