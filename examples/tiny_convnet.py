"""Write a tiny network as an ONNX file: quick to tune, for first steps and tests.

Usage::

    python examples/tiny_convnet.py tiny.onnx [--seed 0] [--kind conv|mlp] [--dynamic-batch]

``conv`` is two convolutions, a pooling and a dense layer on a 1×3×32×32 image; ``mlp`` is three dense layers on a
vector of 64. Either tunes to the end in seconds.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    input_shape: list[int | str],
    output_shape: list[int | str],
) -> onnx.ModelProto:
    model = helper.make_model(
        helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, output_shape)],
            [numpy_helper.from_array(values.astype(np.float32), key) for key, values in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="tunefarm-examples",
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model


def _he(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0.0, np.sqrt(2.0 / np.prod(shape[1:])), shape)


def build_tiny_convnet(*, seed: int = 0, channels: int = 16, batch: int | str = 1) -> onnx.ModelProto:
    """Return a network with input ``x`` (batch, 3, 32, 32) and output ``y`` (batch, 10).

    Args:
        seed: Seed of the weights.
        channels: Channels of the first convolution; the second has twice as many.
        batch: The batch size, or a name for a dynamic one.
    """
    rng = np.random.default_rng(seed)
    weights = {
        "w1": _he(rng, channels, 3, 3, 3),
        "b1": rng.normal(0.0, 0.1, channels),
        "w2": _he(rng, 2 * channels, channels, 3, 3),
        "b2": rng.normal(0.0, 0.1, 2 * channels),
        "w3": _he(rng, 10, 2 * channels),
        "b3": rng.normal(0.0, 0.1, 10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten", axis=1),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="dense", transB=1),
    ]
    return _model("tiny_convnet", nodes, weights, [batch, 3, 32, 32], [batch, 10])


def build_tiny_mlp(*, seed: int = 0, width: int = 64, batch: int | str = 1) -> onnx.ModelProto:
    """Return a network of three dense layers with input ``x`` (batch, width) and output ``y`` (batch, 10)."""
    rng = np.random.default_rng(seed)
    sizes = [width, 2 * width, width, 10]
    weights: dict[str, np.ndarray] = {}
    nodes = []
    x = "x"
    for layer, (inner, outer) in enumerate(pairwise(sizes), start=1):
        weights[f"w{layer}"] = _he(rng, outer, inner)
        weights[f"b{layer}"] = rng.normal(0.0, 0.1, outer)
        last = layer == len(sizes) - 1
        y = "y" if last else f"d{layer}"
        nodes.append(
            helper.make_node("Gemm", [x, f"w{layer}", f"b{layer}"], [y], name=f"dense{layer}", transB=1)
        )
        if not last:
            nodes.append(helper.make_node("Relu", [y], [f"r{layer}"], name=f"relu{layer}"))
        x = f"r{layer}"
    return _model("tiny_mlp", nodes, weights, [batch, width], [batch, 10])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a tiny network as an ONNX file.")
    parser.add_argument("output", type=Path, metavar="OUT.onnx")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=("conv", "mlp"), default="conv")
    parser.add_argument("--dynamic-batch", action="store_true", help="leave the batch size open, as 'batch'")
    args = parser.parse_args()
    build = build_tiny_convnet if args.kind == "conv" else build_tiny_mlp
    model = build(seed=args.seed, batch="batch" if args.dynamic_batch else 1)
    args.output.write_bytes(model.SerializeToString())
    print(f"{args.output}: {model.graph.name}, {args.output.stat().st_size / 1e3:.1f} kB")


if __name__ == "__main__":
    main()
