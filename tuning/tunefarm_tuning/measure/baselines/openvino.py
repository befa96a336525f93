"""OpenVINO, by its hint for latency: in float32, or in what it chooses itself, which is bfloat16 on CPUs that have it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.measure.baselines.runtime import NetworkFile, in_files_order

# Imported with its telemetry, OpenVINO writes to the user's home, reports over the network, and fails in a sandbox that allows neither.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
import openvino  # noqa: E402

_COMPUTES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


class OpenVinoRuntime:
    """Implements `Runtime`.

    Args:
        network: What to open.
        float32: Whether to compute in float32, whatever the CPU has.
    """

    def __init__(self, network: NetworkFile, *, float32: bool) -> None:
        options = {"INFERENCE_NUM_THREADS": network.threads, "PERFORMANCE_HINT": "LATENCY"}
        options |= {"INFERENCE_PRECISION_HINT": "f32"} if float32 else {}
        core = openvino.Core()
        model = core.read_model(str(network.path))
        values = in_files_order([_name(port, network) for port in model.inputs], network)
        arrays = [
            np.ascontiguousarray(value, dtype=port.get_element_type().to_dtype())
            for port, value in zip(model.inputs, values, strict=True)
        ]
        model.reshape({port: list(array.shape) for port, array in zip(model.inputs, arrays, strict=True)})
        compiled = core.compile_model(model, "CPU", options)
        self._request = compiled.create_infer_request()
        for number, array in enumerate(arrays):
            self._request.set_input_tensor(number, openvino.Tensor(array, shared_memory=False))
        self._outputs = range(len(compiled.outputs))
        self.version = openvino.__version__.split("-")[0]
        precision = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        self.computes: str = _COMPUTES.get(precision, precision)

    def run(self) -> object:
        return self._request.infer()

    def outputs(self) -> list[NDArray[Any]]:
        self._request.infer()
        return [np.array(self._request.get_output_tensor(number).data) for number in self._outputs]


def _name(port: Any, network: NetworkFile) -> str:
    """Return the one of an input's names that the network is known by."""
    names: list[str] = sorted(port.get_names())
    known = [name for name in names if name in network.inputs or name in network.constants]
    return (known or names or [""])[0]


def open_float32(network: NetworkFile) -> OpenVinoRuntime:
    """Open a network that computes in float32."""
    return OpenVinoRuntime(network, float32=True)


def open_default(network: NetworkFile) -> OpenVinoRuntime:
    """Open a network as OpenVINO does without being told a precision."""
    return OpenVinoRuntime(network, float32=False)
