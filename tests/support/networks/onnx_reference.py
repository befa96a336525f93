"""Outputs of a network by our untuned build, and by ONNX Runtime without its optimisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import onnx
import onnxruntime
import tvm
import tvm_ffi
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from tvm import relax

from tunefarm_tuning.artifact.arrays import aligned_empty
from tunefarm_tuning.frontend.onnx.reference.exact_products import multiply_exactly
from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

# This machine's, but for LLVM's optimisations: unscheduled loops are built five times as fast so, and compute the same.
UNOPTIMISED = Target.from_json({**parse_target("host").to_json(), "opt-level": 0})


def built_outputs(
    loaded: RelaxNetwork, inputs: list[NDArray[Any]], folder: Path, *, scheduled: bool = False
) -> list[NDArray[Any]]:
    """Build a network for this machine, unoptimised, and return its outputs.

    Args:
        loaded: The network.
        inputs: In its order.
        folder: Where to put the library.
        scheduled: Give its kernels their default schedules; unscheduled loops compute the same and are built in half the time.
    """
    return module_outputs(loaded.module, inputs, folder, scheduled=scheduled)


def module_outputs(
    module: tvm.IRModule, inputs: list[NDArray[Any]], folder: Path, *, scheduled: bool = False
) -> list[NDArray[Any]]:
    """Do the same for a prepared network that nothing else is known of."""
    path = folder / f"{uuid4().hex}.so"  # a path that is in use already would give that library
    build_model(module, UNOPTIMISED, path, default_schedules=scheduled)
    return library_outputs(path, "main", inputs)


def library_outputs(path: Path, entry: str, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs of an entry of a library."""
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    outputs = machine[entry](*map(unaligned_tensor, inputs))
    return (
        [outputs.numpy()]
        if isinstance(outputs, tvm.runtime.Tensor)
        else [output.numpy() for output in outputs]
    )


def reference_outputs(path: Path, loaded: RelaxNetwork, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs of the file that a network was loaded from, by ONNX Runtime, which multiplies bytes exactly."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    model = onnx.load(path)
    multiply_exactly(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {spec.name: value for spec, value in zip(loaded.inputs, inputs, strict=True)}
    return list(session.run([spec.name for spec in loaded.outputs], feed))


def checked_network(g: GraphBuilder, folder: Path, *, special: bool = False) -> RelaxNetwork:
    """Load a network for this machine and assert that its outputs are the reference's.

    Args:
        g: What builds it.
        folder: Where to put its file and the library.
        special: Put not-a-number and both infinities among the inputs.
    """
    path = folder / "model"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), parse_target("host"))
    inputs = random_inputs(loaded.inputs, seed=1)
    if special:
        for value in inputs:
            value.reshape(-1)[:3] = [np.nan, np.inf, -np.inf]
    outputs = built_outputs(loaded, inputs, folder)
    for ours, theirs in zip(outputs, reference_outputs(path, loaded, inputs), strict=True):
        comparison = compare_arrays("y", ours, theirs)
        assert comparison.ok, comparison.message
    return loaded


def unaligned_tensor(array: NDArray[Any]) -> Any:
    """Return an array as a tensor that begins an element after a multiple of 64 bytes: kernels read inputs wherever they lie."""
    array = np.asarray(array)
    if array.dtype.kind == "V" or not array.size:  # numpy's DLPack has no bfloat16
        return tvm.runtime.tensor(array)
    memory = aligned_empty((array.nbytes + array.itemsize,), np.uint8)[array.itemsize :]
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return tvm_ffi.from_dlpack(copy)
