"""Networks of which ONNX Runtime has to run a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_RANDOM = np.random.default_rng(0)
FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
value = helper.make_tensor_value_info
node = helper.make_node


def weights(*shape: int) -> NDArray[Any]:
    return (_RANDOM.standard_normal(shape) * 0.2).astype("f4")


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, NDArray[Any]],
    domains: Sequence[str] = (),
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def detector() -> onnx.ModelProto:
    """Convolutions, then a selection of boxes whose number depends on the image, and a class beside it."""
    return model_of(
        [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="stem"),
            node("Relu", ["a"], ["b"]),
            node("Conv", ["b", "wb"], ["boxes4"]),
            node("Conv", ["b", "ws"], ["s"]),
            node("Sigmoid", ["s"], ["p"]),
            node("Reshape", ["boxes4", "boxes_shape"], ["br"]),
            node("Transpose", ["br"], ["boxes"], perm=[0, 2, 1]),
            node("Reshape", ["p", "scores_shape"], ["scores"]),
            node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["selected"], name="nms"),
            node("Gather", ["selected", "two"], ["index"], axis=1),
            node("Squeeze", ["index", "axis"], ["index1"]),
            node("Gather", ["boxes", "index1"], ["kept"], axis=1),
            node("ReduceMean", ["b"], ["pooled"], axes=[2, 3], keepdims=0),
            node("MatMul", ["pooled", "wc"], ["label"]),
        ],
        [value("x", FLOAT, [1, 3, 16, 16])],
        [
            value("kept", FLOAT, [1, "n", 4]),
            value("label", FLOAT, [1, 5]),
            value("selected", INT64, ["n", 3]),
        ],
        {
            "w1": weights(8, 3, 3, 3),
            "wb": weights(4, 8, 1, 1),
            "ws": weights(3, 8, 1, 1),
            "wc": weights(8, 5),
            "boxes_shape": np.array([1, 4, -1]),
            "scores_shape": np.array([1, 3, -1]),
            "most": np.array([64]),
            "iou": np.array([0.5], "f4"),
            "least": np.array([0.52], "f4"),
            "two": np.array([2]),
            "axis": np.array([1]),
        },
    )


def between_products() -> onnx.ModelProto:
    """Strings between two products: two compiled steps with a part between them."""
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Cast", ["a"], ["text"], to=STRING, name="say"),
            node("Cast", ["text"], ["b"], to=FLOAT),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [2, 7])],
        [value("y", FLOAT, [2, 3])],
        {"w1": weights(7, 5), "w2": weights(5, 3)},
    )


def rounded_before_a_part() -> onnx.ModelProto:
    """The same with a difference of two products in between, of which rounding leaves few digits."""
    first = weights(512, 5)
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["p"]),
            node("MatMul", ["x", "w1b"], ["q"]),
            node("Sub", ["p", "q"], ["a"]),
            node("Cast", ["a"], ["text"], to=STRING),
            node("Cast", ["text"], ["b"], to=FLOAT),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [8, 512])],
        [value("y", FLOAT, [8, 3])],
        {"w1": first, "w1b": first * np.float32(1.0003), "w2": weights(5, 3)},
    )


def endless_loop() -> onnx.ModelProto:
    """A loop whose number of steps depends on its values."""
    body = helper.make_graph(
        [
            node("Add", ["state", "one"], ["next"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["goes_on"]),
        ],
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("state", FLOAT, [1, 5])],
        [value("goes_on", BOOL, []), value("next", FLOAT, [1, 5])],
    )
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Loop", ["most", "yes", "a"], ["b"], body=body, name="loop"),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [1, 7])],
        [value("y", FLOAT, [1, 3])],
        {
            "w1": weights(7, 5),
            "w2": weights(5, 3),
            "most": np.array(1_000_000),
            "yes": np.array(True),
            "one": np.ones((1, 5), "f4"),
            "limit": np.array(40, "f4"),
        },
    )


def counted_loop() -> onnx.ModelProto:
    """A loop whose number of steps is an input; it returns its state, and a row of each step."""
    body = helper.make_graph(
        [
            node("Sin", ["state"], ["next"]),
            node("Cos", ["state"], ["row"]),
            node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("state", FLOAT, [2, 5])],
        [value("goes_on", BOOL, []), value("next", FLOAT, [2, 5]), value("row", FLOAT, [2, 5])],
    )
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Loop", ["steps", "", "a"], ["b", "rows"], body=body, name="loop"),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [2, 7]), value("steps", INT64, [])],
        [value("y", FLOAT, [2, 3]), value("rows", FLOAT, ["steps", 2, 5])],
        {"w1": weights(7, 5), "w2": weights(5, 3)},
    )


def contributed() -> onnx.ModelProto:
    """An operator of ONNX Runtime's own, whose result no one can infer."""
    cropped = ["a", "regions", "images", "size"]
    return model_of(
        [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            node("CropAndResize", cropped, ["b"], domain="com.microsoft", name="crop"),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [1, 3, 8, 8])],
        [value("y", FLOAT, [1, 8, 4, 5])],
        {
            "w1": weights(8, 3, 3, 3),
            "regions": np.array([[0.1, 0.1, 0.8, 0.9]], np.float32),
            "images": np.array([0], np.int32),
            "size": np.array([4, 4], np.int32),
            "w2": weights(4, 5),
        },
        ["com.microsoft"],
    )


def strings_inside() -> onnx.ModelProto:
    """Text is selected and compared between two products."""
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Greater", ["a", "zero"], ["positive"]),
            node("Where", ["positive", "yes", "no"], ["text"], name="choose"),
            node("Equal", ["text", "yes"], ["equal"]),
            node("Cast", ["equal"], ["b"], to=FLOAT),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [2, 7])],
        [value("y", FLOAT, [2, 3])],
        {
            "w1": weights(7, 5),
            "w2": weights(5, 3),
            "zero": np.zeros((), "f4"),
            "yes": np.array(["yes"], object),
            "no": np.array(["no"], object),
        },
        opset=19,
    )


def random_numbers() -> onnx.ModelProto:
    """Random numbers are added between two products."""
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("RandomNormalLike", ["a"], ["noise"], name="noise"),
            node("Add", ["a", "noise"], ["b"]),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [2, 7])],
        [value("y", FLOAT, [2, 3])],
        {"w1": weights(7, 5), "w2": weights(5, 3)},
    )


def nobody_knows() -> onnx.ModelProto:
    """An operator that ONNX Runtime does not know either."""
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Mystery", ["a"], ["b"], domain="my.company", name="mystery"),
            node("MatMul", ["b", "w2"], ["y"]),
        ],
        [value("x", FLOAT, [2, 7])],
        [value("y", FLOAT, [2, 3])],
        {"w1": weights(7, 5), "w2": weights(5, 3)},
        ["my.company"],
    )


def nothing_to_tune() -> onnx.ModelProto:
    return model_of(
        [node("NonZero", ["x"], ["y"], name="where")],
        [value("x", FLOAT, [2, 7])],
        [value("y", INT64, [2, "n"])],
        {},
    )


def sequence_output() -> onnx.ModelProto:
    """It returns a sequence, which no artifact can."""
    sequence = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    return model_of(
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("NonZero", ["a"], ["places"], name="where"),
            node("SplitToSequence", ["a"], ["y"], axis=0),
        ],
        [value("x", FLOAT, [2, 7])],
        [value("places", INT64, [2, "n"]), sequence],
        {"w1": weights(7, 5)},
    )
