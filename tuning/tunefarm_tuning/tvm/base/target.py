"""TVM's objects for our targets.

Apart from the pipeline, which needs ONNX: a child that builds single kernels starts sooner without it.
"""

from __future__ import annotations

import os

import tvm

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base import vector_loads as lane_loads
from tunefarm_tuning.tvm.base import vector_math

# Every process that builds kernels comes through here.
lane_loads.register()
vector_math.register()
# On a machine with a GPU TVM would compile CUDA C itself, with NVRTC, while it builds (see `device_code`). Read at every build.
os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"


def pipeline_name(target: Target) -> str:
    """Return which pipeline a target takes: ``"cpu"`` or ``"gpu"``. Targets of one pipeline share workloads."""
    return "cpu" if target.kind in ("llvm", "c") else "gpu"


def tvm_target(target: Target) -> tvm.target.Target:
    """Return TVM's object for a target; a GPU's gets a host to go with it."""
    made = tvm.target.Target(target.to_json())
    if pipeline_name(target) == "cpu" or target.get("host") is not None:
        return made
    return made.with_host(tvm.target.Target("llvm"))
