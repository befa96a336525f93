"""A network with unusual inputs and outputs and little computation."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BIG = (2, 64, 64, 4)  # 128 kB: large enough to be handed over where it is


def build_odd() -> onnx.ModelProto:
    """Return a network of a scalar, a bool and a large input, whose outputs are inputs, weights and each other's memory."""
    shapes = {"y": BIG, "same": BIG, "flat": (131072 // 4,), "twice": BIG, "weight": (100, 100)}
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Reshape", ["y", "flat_shape"], ["flat"]),
        helper.make_node("Identity", ["y"], ["twice"]),
        helper.make_node("Identity", ["w"], ["weight"]),
        helper.make_node("Cast", ["i"], ["scalar"], to=TensorProto.FLOAT),
        helper.make_node("Not", ["flag"], ["not_flag"]),
        helper.make_node("Add", ["small", "small"], ["double"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, BIG),
        helper.make_tensor_value_info("i", TensorProto.INT64, ()),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, (3,)),
        helper.make_tensor_value_info("small", TensorProto.FLOAT, (4, 3)),
    ]
    outputs = [
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()),
        helper.make_tensor_value_info("scalar", TensorProto.FLOAT, ()),
        helper.make_tensor_value_info("not_flag", TensorProto.BOOL, (3,)),
        helper.make_tensor_value_info("double", TensorProto.FLOAT, (4, 3)),
    ]
    weights = [
        numpy_helper.from_array(np.arange(10000, dtype=np.float32).reshape(100, 100), "w"),
        numpy_helper.from_array(np.array([-1]), "flat_shape"),
    ]
    graph = helper.make_graph(nodes, "odd", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def odd_inputs(seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs for it."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal(BIG).astype(np.float32),
        "i": np.array(seed, np.int64),
        "flag": np.array([True, False, seed % 2 == 0]),
        "small": rng.standard_normal((4, 3)).astype(np.float32),
    }


def odd_outputs(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the expected outputs."""
    y = np.maximum(inputs["x"], 0)
    return {
        "y": y, "same": inputs["x"], "flat": y.ravel(), "twice": y,
        "weight": np.arange(10000, dtype=np.float32).reshape(100, 100),
        "scalar": inputs["i"].astype(np.float32), "not_flag": ~inputs["flag"], "double": inputs["small"] * 2,
    }  # fmt: skip
