"""A network's outputs by our own compile without records, and by ONNX Runtime without its optimisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.targets import parse_target
from tunefarm_tuning.tvm_side.graph_build import build_model
from tunefarm_tuning.tvm_side.pipeline import LoadedModel


def built_outputs(loaded: LoadedModel, inputs: list[NDArray[Any]], folder: Path) -> list[NDArray[Any]]:
    """Build a network for this machine and return its outputs."""
    build_model(loaded.module, parse_target("host"), folder / "lib.so")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    made = machine["main"](*[tvm.runtime.tensor(value) for value in inputs])
    return [one.numpy() for one in ([made] if len(loaded.outputs) == 1 else made)]


def reference_outputs(path: Path, loaded: LoadedModel, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs of the file that a network was loaded from, by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {spec.name: value for spec, value in zip(loaded.inputs, inputs, strict=True)}
    return list(session.run([spec.name for spec in loaded.outputs], feed))
