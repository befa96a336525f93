"""LiteRT (TensorFlow Lite) with XNNPACK, which it uses by itself. It reads TFLite files alone."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from tunefarm_tuning.measure.baselines.runtime import NetworkFile, in_files_order


class LiteRtRuntime:
    """Implements `Runtime`."""

    computes = "as in the file"

    def __init__(self, network: NetworkFile) -> None:
        self._interpreter = Interpreter(str(network.path), num_threads=network.threads)
        details = self._interpreter.get_input_details()
        values = in_files_order([detail["name"] for detail in details], network)
        arrays = {
            detail["index"]: np.ascontiguousarray(value, dtype=detail["dtype"])
            for detail, value in zip(details, values, strict=True)
        }
        for detail in details:
            shape = arrays[detail["index"]].shape
            if tuple(detail["shape"]) != shape:
                self._interpreter.resize_tensor_input(detail["index"], shape)
        self._interpreter.allocate_tensors()
        self._arrays = arrays
        self.version = metadata.version("ai-edge-litert")
        self._set_inputs()

    def run(self) -> object:
        return self._interpreter.invoke()

    def outputs(self) -> list[NDArray[Any]]:
        self._set_inputs()  # memory of inputs may serve other tensors during an inference
        self._interpreter.invoke()
        return [
            np.array(self._interpreter.get_tensor(detail["index"]))
            for detail in self._interpreter.get_output_details()
        ]

    def _set_inputs(self) -> None:
        for index, array in self._arrays.items():
            self._interpreter.set_tensor(index, array)
