"""`Quantiser`: ONNX Runtime's static quantiser on one network, calibrated once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.onnx.graph_reading import opsets_of
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.quantisation.accuracy import Feeds, Outputs, output_errors, outputs_on

PRODUCTS = ("Conv", "Gemm", "MatMul")
"""Operators whose weights and activations are multiplied as bytes."""
BETWEEN = (
    "Add",
    "AveragePool",
    "Clip",
    "Concat",
    "Flatten",
    "GlobalAveragePool",
    "MaxPool",
    "Relu",
    "Reshape",
    "Transpose",
)
"""Operators whose results are stored as bytes, too, where all around them is."""

_PER_CHANNEL_OPSET = 13
_QUANTISED_OPSET = 10
_SAME = 1e-4
"""Largest error of a network that computes the same, in another order."""
_OPTIONS = {"MatMulConstBOnly": True, "WeightSymmetric": True}
"""Products of two activations (attention) stay float: their errors multiply."""


class Quantiser:
    """Makes quantised forms of one network, which differ in the nodes that stay float.

    Args:
        model: The network.
        feeds: Sample sets, by the names of all inputs: the ranges of activations are those that occur on them.
        folder: Where to write files.

    Raises:
        InvalidModelError: quantise-failed.

    Attributes:
        expected: The outputs of the float network on each sample set.
        prepared: The network with its batch normalisations folded into convolutions, constants folded, and its nodes named.
        products: The convolutions and matrix products with constant weights, which may be quantised.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Sequence[Feeds], folder: Path) -> None:
        self.expected = outputs_on(model, feeds)
        model = _with_scales_per_channel(model, feeds, self.expected)
        _check_opset(model)
        self.prepared = _prepared(model, folder)
        self._always_float = _always_float(self.prepared.graph)
        self.products = [
            node for node in _products(self.prepared.graph) if node.name not in self._always_float
        ]
        self._path = folder / "prepared.onnx"
        self._path.write_bytes(onnx_bytes(self.prepared))
        self._ranges = self._calibrated(feeds, folder)

    def quantised(self, operators: Sequence[str], kept: Collection[str]) -> onnx.ModelProto:
        """Return the network with these operators quantised, but for the nodes of the names `kept`.

        Raises:
            InvalidModelError: quantise-failed.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self.prepared)
        try:
            quantizer = QDQQuantizer(
                model,
                opset_of(model) >= _PER_CHANNEL_OPSET,
                False,  # 7 bits are for CPUs whose sums of 8-bit products saturate
                QuantType.QInt8,
                QuantType.QUInt8,
                self._ranges,
                [],
                sorted({*kept, *self._always_float}),
                list(operators),
                dict(_OPTIONS),
            )
            quantizer.quantize_model()
            quantizer.model.topological_sort()
        except MemoryError:
            raise
        except Exception as error:
            raise _failed(error) from error
        result: onnx.ModelProto = quantizer.model.model
        return result

    def _calibrated(self, feeds: Sequence[Feeds], folder: Path) -> Any:
        try:
            calibrator = create_calibrator(
                self._path,
                [*PRODUCTS, *BETWEEN],
                augmented_model_path=str(folder / "calibrating.onnx"),
                calibrate_method=CalibrationMethod.MinMax,
            )
            calibrator.collect_data(_Reader(feeds))
            return calibrator.compute_data()
        except MemoryError:
            raise
        except Exception as error:
            raise _failed(error) from error


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives the calibrator one sample set after the other."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._left: Iterator[Feeds] = iter(feeds)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        feeds = next(self._left, None)
        return None if feeds is None else dict(feeds)


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's operator set."""
    return opsets_of(model)[""]


def _products(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type in PRODUCTS]


def _always_float(graph: onnx.GraphProto) -> set[str]:
    """Return the names of products of two activations, of other types, and of those whose result is both an output and read further on."""
    constants = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    ends = {value.name for value in graph.output} & {name for node in graph.node for name in node.input}
    return {
        node.name for node in _products(graph) if node.input[1] not in constants or node.output[0] in ends
    }


def multiplies_bytes(product: onnx.NodeProto) -> bool:
    """Return whether a quantised product multiplies bytes; a grouped convolution is computed in float32."""
    return not any(attribute.name == "group" and attribute.i > 1 for attribute in product.attribute)


def _with_scales_per_channel(
    model: onnx.ModelProto, feeds: Sequence[Feeds], expected: Sequence[Outputs]
) -> onnx.ModelProto:
    """Return the network in an opset that knows scales per channel; as it is if ONNX's converter cannot, or changes what it computes."""
    if opset_of(model) >= _PER_CHANNEL_OPSET:
        return model
    try:
        converted = version_converter.convert_version(model, _PER_CHANNEL_OPSET)
        outputs = outputs_on(converted, feeds[:1])
    except (version_converter.ConvertError, InvalidModelError, RuntimeError, ValueError, IndexError):
        return model
    names = [value.name for value in model.graph.output]
    errors = output_errors(names, outputs, expected[:1])
    return model if max(error.mean for error in errors) > _SAME else converted


def _check_opset(model: onnx.ModelProto) -> None:
    """Refuse a network whose opset has no quantised form.

    Raises:
        InvalidModelError: quantise-failed.
    """
    if opset_of(model) < _QUANTISED_OPSET:
        raise InvalidModelError(
            f"the model is of opset {opset_of(model)}, which has no quantised form, and ONNX's converter to a newer one fails or changes "
            f"what it computes: export it again, with opset {_PER_CHANNEL_OPSET} or newer",
            code="quantise-failed",
        )


def _prepared(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return the network as ONNX Runtime's basic optimisations leave it."""
    path = folder / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        onnxruntime.InferenceSession(onnx_bytes(model), options, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:
        raise _failed(error) from error
    prepared = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), data_prop=True)
    for number, node in enumerate(prepared.graph.node):
        node.name = f"{node.op_type} {number}"
    return prepared


def _failed(error: Exception) -> InvalidModelError:
    return InvalidModelError(
        f"ONNX Runtime cannot quantise the model: {clean_message(error)}", code="quantise-failed"
    )
