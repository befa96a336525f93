"""Networks that are imported for all sizes of a dimension, built once, and run at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from onnx_models import (
    INT64,
    GraphBuilder,
    conv_1d,
    encoder_block,
    mobile_block,
    residual_net,
    squeeze_excite,
    u_net,
)
from onnx_reference import UNOPTIMISED
from quantised_networks import image, lstm, rows
from tvm import relax

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import dtype_name, real_inputs
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.reference.comparison import STEPS, compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.frontend.importer import import_open
from tunefarm_tuning.tvm.transform.pipeline import prepare
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape, open_dimensions
from tunefarm_tuning.workload.task import TensorSpec

N, H, W = (OpenDimension(name=name) for name in ("n", "h", "w"))
H4, W4 = (OpenDimension(name=name, multiple=4) for name in ("h", "w"))


def text_encoder(width: int = 16, heads: int = 2) -> onnx.ModelProto:
    """Attention over tokens and positions, with every shape computed from that of the tokens, as exporters write it."""
    g = GraphBuilder()
    ids = g.input("ids", ["batch", "length"], INT64)
    shape = g.node("Shape", ids)
    batch, length = (g.node("Gather", shape, g.ints(axis), axis=0) for axis in (0, 1))
    positions = g.node("Slice", g.weight(64, width), g.ints(0), length, g.ints(0))
    x = g.node("Add", g.node("Gather", g.weight(50, width), ids), positions)
    split = g.node("Concat", batch, length, g.ints(heads, -1), axis=0)
    joined = g.node("Concat", batch, length, g.ints(width), axis=0)

    def head_view(order: Sequence[int]) -> str:
        view: str = g.node("Transpose", g.node("Reshape", g.linear(x, width, width), split), perm=list(order))
        return view

    scores = g.node("MatMul", head_view((0, 2, 1, 3)), head_view((0, 2, 3, 1)))
    unseen = g.node(
        "Expand",
        g.constant(np.zeros((1, 1, 1, 1), np.float32)),
        g.node("Concat", batch, g.ints(1), length, length, axis=0),
    )
    mixed = g.node(
        "MatMul", g.node("Softmax", g.node("Add", scores, unseen), axis=-1), head_view((0, 2, 1, 3))
    )
    mixed = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
    x = g.node("LayerNormalization", g.node("Add", x, mixed), g.weight(width), g.weight(width), axis=-1)
    g.output(g.node("Add", x, g.linear(x, width, width), out="encoded"), ["batch", "length", width])
    return g.model()


def fused_text_encoder(width: int = 16, heads: int = 2) -> onnx.ModelProto:
    """A text encoder as ONNX Runtime's optimiser and quantiser write it."""
    g, ours = GraphBuilder(), {"domain": "com.microsoft"}
    ids = g.node("Cast", g.input("ids", ["batch", "length"], INT64), to=onnx.TensorProto.INT32)
    table, scale, shift = g.weight(64, width), g.weight(width), g.weight(width)
    x, _ = g.node(
        "EmbedLayerNormalization", ids, "", g.weight(50, width), table, "", scale, shift, outputs=2, **ours
    )
    mask = g.node("Cast", g.node("Greater", x, g.constant(np.float32(-99))), to=onnx.TensorProto.INT32)
    mask = g.node("ReduceMax", mask, axes=[2], keepdims=0)
    y = g.node("Attention", x, g.weight(width, 3 * width), g.weight(3 * width), mask, num_heads=heads, **ours)
    x = g.node("SkipLayerNormalization", y, x, scale, shift, **ours)
    turned = g.node("RotaryEmbedding", x, "ids", g.weight(64, 4), g.weight(64, 4), num_heads=heads, **ours)
    options: dict[str, Any] = {"num_heads": heads, **ours}
    y = g.node("MultiHeadAttention", turned, turned, x, g.weight(3 * width), mask, **options)
    x, _, _, total = g.node("SkipSimplifiedLayerNormalization", y, x, scale, outputs=4, **ours)
    packed = g.constant(np.arange(24 * 8, dtype=np.uint8).reshape(24, 1, 8))
    y = g.node("MatMulNBits", x, packed, g.weight(24), K=width, N=24, bits=4, block_size=width, **ours)
    y = g.node("FusedMatMul", y, g.weight(24, 24), transB=1, alpha=0.5, **ours)
    g.output(g.node("QuickGelu", y, out="encoded", **ours), ["batch", "length", 24])
    g.output(total, ["batch", "length", width])
    return g.model()


def resized_to_another() -> onnx.ModelProto:
    """Two scales of one image, the smaller one resized to the size of the larger."""
    g = GraphBuilder()
    image = g.input("image", [1, 3, "h", "w"])
    large = g.conv(image, 3, 4)
    small = g.conv(large, 4, 4, stride=2)
    spatial = g.node("Slice", g.node("Shape", large), g.ints(2), g.ints(4), g.ints(0))
    sizes = g.node("Concat", g.ints(1, 4), spatial, axis=0)
    up = g.node("Resize", small, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    g.output(g.node("Add", up, large, out="y"), [1, 4, "h", "w"])
    return g.model()


def upsampled(opset: int = 9) -> onnx.ModelProto:
    """A convolution and `Upsample`, as exporters wrote it before opset 10: with scales as an input, or as an attribute."""
    g = GraphBuilder()
    x = g.conv(g.input("x", ["n", 3, "h", "w"]), 3, 4)
    scales = [1.0, 1.0, 2.0, 3.0]
    if opset < 9:
        g.output(g.node("Upsample", x, scales=scales, out="y"), None)
    else:
        g.output(g.node("Upsample", x, g.constant(np.array(scales, np.float32)), out="y"), None)
    return g.model(opset)


def flattened_rows() -> onnx.ModelProto:
    """Numbers of rows and of columns, products of both, and a range of one."""
    g = GraphBuilder()
    x = g.input("x", ["n", 6, "w"])
    shape = g.node("Shape", x)
    rows, columns = (g.node("Gather", shape, g.constant(np.array(axis, np.int64)), axis=0) for axis in (0, 2))
    row = g.node("Unsqueeze", g.node("Mul", rows, g.constant(np.array(6, np.int64))), g.ints(0))
    flat = g.node("Reshape", x, g.node("Concat", row, g.ints(-1), axis=0))
    zero, unit = (g.constant(np.array(value, np.int64)) for value in (0, 1))
    ramp = g.node("Cast", g.node("Range", zero, columns, unit), to=1)
    g.output(g.node("Mul", flat, ramp, out="y"), ["rows", "w"])
    return g.model()


def recurrent(kind: str = "LSTM", gates: int = 4, hidden: int = 20) -> onnx.ModelProto:
    """A layer in both directions, without a first state."""
    g = GraphBuilder()
    x = g.input("x", ["steps", "batch", 6])
    weights = [g.weight(2, gates * hidden, size) for size in (6, hidden)]
    y, *last = g.node(kind, x, *weights, hidden_size=hidden, direction="bidirectional", outputs=2)
    g.output(y, ["steps", 2, "batch", hidden])
    g.output(last[0], [2, "batch", hidden])
    return g.model()


def tiled() -> onnx.ModelProto:
    """A row that all rows of the input get, and a matrix that is repeated along both axes."""
    g = GraphBuilder()
    x = g.input("x", ["n", "w"])
    shape = g.node("Shape", x)
    rows = g.node("Concat", g.node("Gather", shape, g.ints(0), axis=0), g.ints(1), axis=0)
    g.output(g.node("Tile", g.weight(1, 8), rows))
    g.output(g.node("Relu", g.node("Tile", x, shape)))
    return g.model(17)


def classic() -> onnx.ModelProto:
    """What scikit-learn's converters write around and in place of networks, each on rows of four columns."""
    g, ml = GraphBuilder(), {"domain": "ai.onnx.ml"}
    x = g.input("x", ["rows", 4])
    scaled = g.node("Scaler", x, offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0, 3.0, 4.0, 5.0], **ml)
    scaled = g.node("Scaler", scaled, offset=[0.1], scale=[1.5], **ml)
    filled = g.node("Imputer", scaled, imputed_value_floats=[1.0] * 4, replaced_value_float=0.0, **ml)
    taken = g.node("ArrayFeatureExtractor", filled, g.ints(3, 1), **ml)
    beside = g.node("FeatureVectorizer", filled, taken, inputdimensions=[4, 2], **ml)
    g.output(g.node("Normalizer", beside, norm="L2", **ml))
    g.output(g.node("Binarizer", x, threshold=0.3, **ml))
    encoded = g.node("LabelEncoder", x, keys_floats=[0.0, 1.0], values_int64s=[7, 8], default_int64=3, **ml)
    g.output(g.node("OneHotEncoder", encoded, cats_int64s=[3, 7, 8], zeros=1, **ml))
    g.output(g.node("LinearRegressor", filled, coefficients=[0.1, -0.2, 0.3, 0.4], intercepts=[0.5], **ml))
    options = {"coefficients": np.eye(4).reshape(-1).tolist(), "intercepts": [0.0] * 4}
    label, scores = g.node(
        "LinearClassifier",
        x,
        outputs=2,
        classlabels_ints=range(4),
        post_transform="SOFTMAX",
        **options,
        **ml,
    )
    g.output(label, None, INT64)
    g.output(scores)
    vectors = {
        "support_vectors": np.linspace(-1, 1, 8).tolist(),
        "n_supports": 2,
        "kernel_type": "RBF",
        "kernel_params": [0.3, 0.0, 0.0],
    }
    g.output(g.node("SVMRegressor", x, coefficients=[0.5, -0.7], rho=[0.1], **vectors, **ml))
    nodes: dict[str, list[Any]] = {
        "treeids": [0, 0, 0],
        "nodeids": [0, 1, 2],
        "featureids": [2, 0, 0],
        "modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "values": [0.25, 0.0, 0.0],
        "truenodeids": [1, 0, 0],
        "falsenodeids": [2, 0, 0],
    }
    leaves: dict[str, list[Any]] = {
        "treeids": [0, 0],
        "nodeids": [1, 2],
        "ids": [0, 0],
        "weights": [0.5, -0.25],
    }
    tree = {f"nodes_{name}": values for name, values in nodes.items()}
    tree |= {f"target_{name}": values for name, values in leaves.items()}
    g.output(g.node("TreeEnsembleRegressor", x, n_targets=1, **tree, **ml))
    model = g.model()
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
    return model


def relative_positions() -> onnx.ModelProto:
    """Products with embeddings of all distances between two steps, of which there are twice the steps less one, as a Conformer has."""
    g = GraphBuilder()
    x = g.input("x", [1, "length", 8])
    length = g.node("Gather", g.node("Shape", x), g.ints(1), axis=0)
    start, end = g.node("Sub", g.ints(50), length), g.node("Add", g.ints(49), length)
    distances = g.node("Slice", g.weight(1, 99, 8), start, end, g.ints(1))
    heads = [g.node("Reshape", value, g.ints(1, -1, 2, 4)) for value in (x, distances)]
    queries, keys = (
        g.node("Transpose", value, perm=list(perm))
        for value, perm in zip(heads, ((0, 2, 1, 3), (0, 2, 3, 1)), strict=True)
    )
    g.output(g.node("MatMul", queries, keys, out="y"), [1, 2, "length", "distances"])
    return g.model()


def triangle(kind: str = "triangle") -> onnx.ModelProto:
    """A part of a product, as causal attention has it: loops are compared with each other."""
    g = GraphBuilder()
    x = g.input("x", [1, "length", 16])
    keys = g.node("Transpose", g.linear(x, 16, 8), perm=[0, 2, 1])
    scores = g.node("MatMul", g.linear(x, 16, 8), keys)
    length = g.node("Gather", g.node("Shape", x), g.constant(np.int64(1)), axis=0)
    places = g.node("Range", g.constant(np.int64(0)), length, g.constant(np.int64(1)))
    along, down = (g.node("Unsqueeze", places, g.ints(axis)) for axis in (0, 1))
    if kind == "triangle":
        scores = g.node("Trilu", scores, upper=0)
    elif kind == "band":
        near = g.node("Less", g.node("Sub", along, down), g.constant(np.int64(4)))
        scores = g.node("Mul", scores, g.node("Cast", near, to=1))
    else:
        seen = g.node("Cast", g.node("LessOrEqual", along, down), to=1)
        hidden = g.node("Mul", g.node("Sub", g.constant(np.float32(1)), seen), g.constant(np.float32(-1e4)))
        scores = g.node("Softmax", g.node("Add", scores, hidden), axis=-1)
    g.output(g.node("MatMul", scores, x, out="y"), [1, "length", 16])
    return g.model()


def with_open(model: onnx.ModelProto, shapes: Sequence[OpenShape]) -> onnx.ModelProto:
    """Return a network whose file leaves the same dimensions open."""
    for value, shape in zip(model.graph.input, shapes, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            if isinstance(size, OpenDimension):
                dim.dim_param = size.name
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def bound(shapes: Sequence[OpenShape], sizes: dict[str, int]) -> list[tuple[int, ...]]:
    return [
        tuple(sizes[size.name] if isinstance(size, OpenDimension) else size for size in shape)
        for shape in shapes
    ]


class OpenNetwork:
    """A network that is built for all sizes."""

    def __init__(self, model: onnx.ModelProto, shapes: Sequence[OpenShape], folder: Path) -> None:
        self._shapes = tuple(shapes)
        data = with_open(model, shapes).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        self._reference = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self._values = real_inputs(model.graph)
        any_size = {
            size.name: 4 * size.multiple
            for shape in shapes
            for size in shape
            if isinstance(size, OpenDimension)
        }
        binding = Binding(shapes={spec.name: spec.shape for spec in self._specs(any_size)})
        opened = import_open(bind_model(onnx.load_model_from_string(data), binding), shapes)
        self.maxima = opened.maxima
        prepared, warnings = prepare(opened.module, UNOPTIMISED)
        assert not warnings
        build_model(prepared, UNOPTIMISED, folder / "open.so")
        library = tvm.runtime.load_module(str(folder / "open.so"))
        self._main = relax.VirtualMachine(library, tvm.cpu())["main"]

    def check(self, sizes: dict[str, int], rounding: str) -> None:
        specs = self._specs(sizes)
        inputs = random_inputs(specs, seed=1)
        expected = self._reference.run(
            None, {spec.name: value for spec, value in zip(specs, inputs, strict=True)}
        )
        for ours, theirs in zip(self._run(sizes, inputs), expected, strict=True):
            comparison = compare_arrays("y", ours, theirs, rounding=rounding)
            assert comparison.ok, (sizes, comparison.message)

    def _run(self, sizes: dict[str, int], inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        counts = [sizes[size.name] // size.multiple for size in open_dimensions(self._shapes)]
        outputs = self._main(tvm.runtime.ShapeTuple(counts), *[tvm.runtime.tensor(value) for value in inputs])
        return (
            [outputs.numpy()]
            if isinstance(outputs, tvm.runtime.Tensor)
            else [part.numpy() for part in outputs]
        )

    def _specs(self, sizes: dict[str, int]) -> list[TensorSpec]:
        return [
            TensorSpec(name=value.name, shape=shape, dtype=dtype_name(value.type.tensor_type.elem_type) or "")
            for value, shape in zip(self._values, bound(self._shapes, sizes), strict=True)
        ]


NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], list[OpenShape], list[dict[str, int]]]] = {
    "residual_net": (
        residual_net,
        [(N, 3, H, W)],
        [{"n": 1, "h": 32, "w": 32}, {"n": 3, "h": 33, "w": 57}, {"n": 2, "h": 1, "w": 2}],
    ),
    "mobile_block": (
        lambda: mobile_block(channels=16),
        [(N, 16, H, W)],
        [{"n": 1, "h": 9, "w": 31}, {"n": 5, "h": 3, "w": 1}],
    ),
    "squeeze_excite": (
        lambda: squeeze_excite(channels=16),
        [(1, 16, H, W)],
        [{"h": 7, "w": 40}, {"h": 1, "w": 1}],
    ),
    "u_net": (u_net, [(1, 1, H4, W4)], [{"h": 16, "w": 16}, {"h": 4, "w": 36}]),
    "conv_1d": (conv_1d, [(N, 2, W)], [{"n": 1, "w": 64}, {"n": 3, "w": 131}]),
    "batched encoder": (encoder_block, [(N, 8)], [{"n": 1}, {"n": 7}]),
    "text_encoder": (text_encoder, [(N, W)], [{"n": 1, "w": 1}, {"n": 1, "w": 64}, {"n": 4, "w": 13}]),
    "fused_text_encoder": (
        fused_text_encoder,
        [(N, W)],
        [{"n": 1, "w": 2}, {"n": 1, "w": 64}, {"n": 4, "w": 13}],
    ),
    "resized_to_another": (resized_to_another, [(1, 3, H, W)], [{"h": 8, "w": 8}, {"h": 5, "w": 21}]),
    "lstm": (recurrent, [(W, N, 6)], [{"w": 1, "n": 1}, {"w": 7, "n": 4}, {"w": 3, "n": 6}]),
    "gru": (lambda: recurrent("GRU", 3), [(W, N, 6)], [{"w": 5, "n": 3}]),
    "upsampled": (upsampled, [(N, 3, H, W)], [{"n": 1, "h": 4, "w": 5}, {"n": 3, "h": 7, "w": 1}]),
    "upsampled by an attribute": (lambda: upsampled(8), [(1, 3, H, W)], [{"h": 3, "w": 9}]),
    "quantised": (image, [(N, 4, H, W)], [{"n": 1, "h": 4, "w": 5}, {"n": 3, "h": 7, "w": 2}]),
    "quantised per channel": (lambda: image(True), [(N, 4, H, W)], [{"n": 2, "h": 6, "w": 3}]),
    "quantised rows": (rows, [(N, 8)], [{"n": 1}, {"n": 7}]),
    "quantised lstm": (
        lambda: lstm(24, batch=4, dtype=np.uint8, zero=128),
        [(W, N, 20)],
        [{"w": 7, "n": 1}, {"w": 3, "n": 6}],
    ),
    "relative positions": (relative_positions, [(1, W, 8)], [{"w": 1}, {"w": 7}, {"w": 40}]),
    "triangle": (triangle, [(1, W, 16)], [{"w": 64}, {"w": 128}, {"w": 33}, {"w": 1}]),
    "mask": (lambda: triangle("mask"), [(1, W, 16)], [{"w": 64}, {"w": 128}, {"w": 33}, {"w": 1}]),
    "band": (lambda: triangle("band"), [(1, W, 16)], [{"w": 64}, {"w": 128}, {"w": 33}, {"w": 1}]),
    "classic": (classic, [(N, 4)], [{"n": 1}, {"n": 7}, {"n": 130}]),
    "tiled": (tiled, [(N, W)], [{"n": 1, "w": 3}, {"n": 4, "w": 1}, {"n": 2, "w": 5}]),
    "flattened_rows": (flattened_rows, [(N, 6, W)], [{"n": 1, "w": 3}, {"n": 4, "w": 19}]),
}


MAXIMA = {
    "relative positions": {"w": 50},
    "text_encoder": {"w": 64},
    "fused_text_encoder": {"w": 64},
}  # as many as there are positions


@pytest.mark.matrix(every=21, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_build_is_right_for_all_sizes(name: str, tmp_path: Path) -> None:
    build, shapes, sizes = NETWORKS[name]
    network = OpenNetwork(build(), shapes, tmp_path)
    for choice in sizes:
        network.check(choice, STEPS if name.startswith("quantised") else "float32")
    assert network.maxima == MAXIMA.get(name, {})


def test_sizes_that_fit_only_as_multiples_are_refused_as_any(tmp_path: Path) -> None:
    """Halved and doubled, an odd size is not what it was: the sum of the two has no shape."""
    model = with_open(u_net(), [(1, 1, H, W)])
    network = bind_model(model, Binding(shapes={"image": (1, 1, 16, 16)}))
    with pytest.raises(InvalidModelError) as error:
        prepare(import_open(network, [(1, 1, H, W)]).module, UNOPTIMISED)
    assert error.value.code == "unsupported-operator"
