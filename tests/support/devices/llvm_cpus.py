"""The CPUs that LLVM knows, with their features."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target


def x86_cpus() -> Iterator[tuple[str, Target, set[str]]]:
    """Yield the name, the target and LLVM's features of each x86 CPU."""
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")
    for name in tvm_ffi.get_global_func("target.llvm_get_cpu_archlist")(tvm.target.Target("llvm")):
        target = Target.from_json({"kind": "llvm", "mcpu": str(name), "mtriple": "x86_64-linux-gnu"})
        try:
            has = {str(feature) for feature in features(tvm_target(target))}
        except Exception:  # (a name of another architecture)
            continue
        yield str(name), target, has
