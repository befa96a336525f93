"""Artifacts that TVM compiles in a second, for tests of calling an artifact."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path
from typing import Any

import onnx

from tunefarm_tuning.artifact.pack import pack
from tunefarm_tuning.target.toolchain import versions

LOADED_TWICE = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from loader import load
everywhere = os.sched_getaffinity(0)
limited = {max(everywhere)}
os.sched_setaffinity(0, limited)
before = dict(os.environ)
model = load(sys.argv[1], threads=2)
more = load(sys.argv[1], threads=3)
inputs = {spec["name"]: np.ones(spec["shape"], spec["dtype"]) for spec in model.inputs}
expected = model.run(inputs)
def same(outputs):
    return all(np.array_equal(outputs[name], array) for name, array in expected.items())
def tasks():
    return len(os.listdir("/proc/self/task"))
"""
"""The head of a program that loads its argument, an artifact, on two and on three threads, while it is bound to one core."""


def plain_artifact(model: onnx.ModelProto, path: Path, **changes: Any) -> Path:
    """Compile a network untuned, and pack it.

    Args:
        model: The network.
        path: Where the artifact is put.
        changes: Of the manifest.
    """
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    target = tvm.target.Target({"kind": "llvm"})
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "lib.so"
        relax.build(from_onnx(model), target).export_library(str(library))
        manifest = {
            "format": "tunefarm-artifact", "format_version": 1, "name": path.stem, "target": {"kind": "llvm"},
            "target_key": "llvm", "machine": platform.machine(), "cpu_features": [], "threads": 1, "versions": versions(),
            "inputs": [_spec(value) for value in model.graph.input],
            "outputs": [_spec(value) for value in model.graph.output],
            **changes,
        }  # fmt: skip
        pack(path, library=library, manifest=manifest, report={}, records=[])
    return path


def _spec(value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return {"name": value.name, "shape": [dim.dim_value for dim in tensor.shape.dim], "dtype": str(dtype)}
