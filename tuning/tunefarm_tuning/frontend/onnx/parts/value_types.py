"""The types of a node's results, inferred from those of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference
from numpy.typing import NDArray

from tunefarm_tuning.frontend.onnx.binding import dtype_name
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, names_read
from tunefarm_tuning.workload.runtime_part import OpenSpec

_MAX_CONSTANT_BYTES = 64 << 10
"""Larger inputs decide no shape."""


def tensor_type(dtype: str, shape: Sequence[int]) -> onnx.TypeProto:
    """Return the type of a tensor of a fixed shape."""
    return onnx.helper.make_tensor_type_proto(
        onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
    )


def open_spec(name: str, kind: onnx.TypeProto | None) -> OpenSpec | None:
    """Return a type as the spec of a tensor; None if it is not a tensor of a supported dtype and of a known rank."""
    if kind is None or kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    dtype = dtype_name(kind.tensor_type.elem_type)
    if dtype is None:
        return None
    # Some exporters write -1 for a size that the run decides.
    sizes = (
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
        for dim in kind.tensor_type.shape.dim
    )
    return OpenSpec(name=name, shape=tuple(sizes), dtype=dtype)


def is_fixed(kind: onnx.TypeProto | None) -> bool:
    """Return whether a type is that of a tensor with a supported dtype, all of whose dimensions are known and not zero."""
    spec = open_spec("", kind)
    return spec is not None and all(size is not None and size > 0 for size in spec.shape)


class TypeInference:
    """Infers the types of nodes' results, one node after the other.

    Args:
        model: Its opsets are used.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model

    def of_node(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto | None],
        constants: Mapping[str, NDArray[Any] | onnx.TensorProto],
    ) -> dict[str, onnx.TypeProto | None]:
        """Return the types of a node's results by name; None for one that nobody can infer.

        Args:
            node: The node.
            types: The types of what it reads, by name; None or missing where unknown.
            constants: The values of what it reads, where they are known.
        """
        graph = onnx.helper.make_graph(
            [node], "node", [], [onnx.ValueInfoProto(name=name) for name in node.output if name]
        )
        for name in names_read(node):
            value = constants.get(name)
            if isinstance(value, np.ndarray) and value.nbytes <= _MAX_CONSTANT_BYTES:
                graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            elif isinstance(value, onnx.TensorProto) and value.ByteSize() <= _MAX_CONSTANT_BYTES:
                graph.initializer.append(value)
            else:
                kind = types.get(name)
                graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
        model = onnx.ModelProto(ir_version=self._model.ir_version, graph=graph)
        model.opset_import.extend(self._model.opset_import)
        inferred = self._by_onnx(model)
        if node.domain not in ONNX_DOMAINS and any(open_spec("", kind) is None for kind in inferred.values()):
            inferred |= self._by_onnxruntime(model)
        return inferred

    @staticmethod
    def _by_onnx(model: onnx.ModelProto) -> dict[str, onnx.TypeProto | None]:
        names = [value.name for value in model.graph.output]
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except Exception:  # noqa: BLE001  (it raises anything for nodes that it does not know)
            return dict.fromkeys(names)
        return {value.name: _complete(value.type) for value in inferred.output}

    @staticmethod
    def _by_onnxruntime(model: onnx.ModelProto) -> dict[str, onnx.TypeProto | None]:
        """Infer by ONNX Runtime, which knows its own operators."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  (the reference says what ONNX Runtime cannot run)
            return {}
        return {output.name: _of_onnxruntime(output) for output in session.get_outputs()}


def _complete(kind: onnx.TypeProto) -> onnx.TypeProto | None:
    return kind if kind.WhichOneof("value") is not None else None


_DTYPES = {"float16": "float16", "float": "float32", "double": "float64"}


def _of_onnxruntime(output: Any) -> onnx.TypeProto | None:
    """Return the type of a session's output; None for other types than tensors of numbers."""
    word = str(output.type).removeprefix("tensor(").removesuffix(")")
    try:
        dtype = np.dtype(_DTYPES.get(word, word))
        element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    except (TypeError, KeyError, ValueError):
        return None
    if not output.shape:  # it says so of scalars, and of tensors of an unknown number of dimensions
        return None
    shape = [size if isinstance(size, int) else None for size in output.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)
