"""Networks whose control flow is resolved, and compared with the file in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from numpy.typing import NDArray

from tunefarm_tuning.frontend.onnx.bound_network import bind_model, runnable_bytes
from tunefarm_tuning.frontend.onnx.control_flow.flatten import has_control_flow
from tunefarm_tuning.workload.binding import Binding


def parsed(graph: str, opset: int = 17) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{graph}')
    onnx.checker.check_model(model)
    return model


def run(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(runnable_bytes(model), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def flat(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]], **values: Any) -> onnx.ModelProto:
    """Return the bound network; the values are bound, and the results compared with the file's on the other inputs."""
    file = onnx.ModelProto()
    file.CopyFrom(model)
    binding = Binding.of({name: array.shape for name, array in feeds.items() if name not in values}, values)
    network = bind_model(model, binding)
    assert not has_control_flow(network.model.graph)
    onnx.checker.check_model(network.model, full_check=True)
    expected = run(file, feeds)
    results = run(network.model, {spec.name: feeds[spec.name] for spec in network.inputs})
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
    return network.model


def operators(model: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in model.graph.node)
