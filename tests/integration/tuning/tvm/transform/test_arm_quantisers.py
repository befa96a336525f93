"""What ONNX Runtime's quantisers and TFLite write, on Arm CPUs: every convolution and product multiplies bytes by the instruction there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from arm_kernels import assemblies, left_in_floats
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from tflite_zoo import ZOO

from tunefarm_tuning import ImportLimits
from tunefarm_tuning.frontend.conversion import convert_tflite
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target

quantization = pytest.importorskip("onnxruntime.quantization")

TRIPLE = "-mtriple=aarch64-linux-gnu"
TARGETS = {
    "a76": parse_target(f"llvm -mcpu=cortex-a76 {TRIPLE}"),
    "n1": parse_target(f"llvm -mcpu=neoverse-n1 {TRIPLE}"),
    "max": parse_target(f"llvm -mcpu=generic -mattr=+bf16,+dotprod,+fullfp16,+i8mm {TRIPLE}"),
}
INPUT = (1, 1, 28, 28)
BYTES = (quantization.QuantType.QUInt8, quantization.QuantType.QInt8)
WAYS = {
    **{
        f"{form.name}, {activations.name}{', per channel' * per_channel}": partial(
            quantization.quantize_static,
            quant_format=form,
            activation_type=activations,
            weight_type=quantization.QuantType.QInt8,
            per_channel=per_channel,
        )
        for form in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator)
        for activations in BYTES
        for per_channel in (False, True)
    },
    **{
        f"dynamic, {weights.name}": partial(quantization.quantize_dynamic, weight_type=weights)
        for weights in BYTES
    },
}


def network() -> onnx.ModelProto:
    """A first convolution of a single channel, a depthwise, a pointwise, a grouped, and a plain one, and a product."""
    graph = GraphBuilder()

    def conv(x: str, depth: int, results: int, kernel: int, group: int = 1, **how: Any) -> str:
        weight = graph.weight(results, depth // group, kernel, kernel)
        sizes = {"kernel_shape": [kernel, kernel], "group": group, "pads": [kernel // 2] * 4}
        return graph.node("Relu", graph.node("Conv", x, weight, graph.weight(results), **sizes, **how))

    x = conv(graph.input("x", INPUT), 1, 16, 3, strides=[2, 2])
    x = conv(x, 16, 16, 3, 16)
    x = conv(x, 16, 32, 1)
    x = conv(x, 32, 32, 3, 4)
    x = conv(x, 32, 48, 3)
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.node("MatMul", x, graph.weight(48, 10)))
    return graph.model()


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._samples = self._drawn()

    def _drawn(self) -> Iterator[dict[str, NDArray[np.float32]]]:
        for seed in range(4):
            yield {"x": np.random.default_rng(seed).normal(size=INPUT).astype(np.float32)}

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self._samples, None)


def assert_every_product_has_the_instruction(
    model: onnx.ModelProto, folder: Path, target: Target, products: int
) -> None:
    texts = assemblies(model, folder, target)
    assert not left_in_floats(folder, target)
    assert len(texts) == products
    for text in texts:
        assert re.search(r"^\t(sdot|smmla)\t", text, re.MULTILINE)
        assert not re.search(r"^\ts(mull|mlal)2?\tv\d+\.8h", text, re.MULTILINE)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_what_onnx_runtime_quantised(way: str, target: str, tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "float.onnx")
    samples = () if way.startswith("dynamic") else (Samples(),)
    WAYS[way](str(tmp_path / "float.onnx"), str(tmp_path / "quantised.onnx"), *samples)
    model = onnx.load(tmp_path / "quantised.onnx")
    assert_every_product_has_the_instruction(model, tmp_path / "kernels", TARGETS[target], 6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("case", "products"),
    [
        ("quantized_network", 3),
        ("quantized_inside", 1),
        ("quantized_unsigned", 1),
        ("quantized_conv_of_padded", 1),
    ],
)
def test_what_tflite_quantised(case: str, products: int, target: str, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(ZOO[case]().data)
    convert_tflite(tmp_path / "net.tflite", tmp_path / "net.onnx", limits=ImportLimits(timeout_sec=120))
    model = onnx.load(tmp_path / "net.onnx")
    assert_every_product_has_the_instruction(model, tmp_path / "kernels", TARGETS[target], products)
