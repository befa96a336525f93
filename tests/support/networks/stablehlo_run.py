"""Export functions of JAX as StableHLO, and run the ONNX models that they are converted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
from jax import export

from tunefarm_convert import FileFormat, to_onnx


def exported(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the function as `jax.export` gives it, for inputs like these."""
    shapes = [jax.ShapeDtypeStruct(np.shape(array), np.asarray(array).dtype) for array in inputs]
    return export.export(jax.jit(function))(*shapes)


def converted(module: bytes | str) -> onnx.ModelProto:
    """Convert a module, text or bytecode, in this process."""
    return to_onnx(module.encode() if isinstance(module, str) else module, FileFormat.STABLEHLO)


def computed(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of ONNX Runtime without optimisations."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {value.name: np.asarray(x) for value, x in zip(session.get_inputs(), inputs, strict=True)}
    return list(session.run(None, feeds))


def assert_like_jax(
    function: Callable[..., Any], *inputs: Any, rtol: float = 2e-4, atol: float = 2e-5
) -> onnx.ModelProto:
    """Convert a function, and compare its outputs with those of JAX."""
    model = converted(exported(function, *inputs).mlir_module_serialized)
    expected = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(*inputs))]
    outputs = computed(model, inputs)
    assert [(array.shape, array.dtype) for array in outputs] == [
        (array.shape, array.dtype) for array in expected
    ]
    for output, wanted in zip(outputs, expected, strict=True):
        half = wanted.dtype == np.float16
        np.testing.assert_allclose(output, wanted, rtol=1e-2 if half else rtol, atol=1e-2 if half else atol)
    return model
