"""The graph pipeline keeps the results: networks and single operators against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs
from tvm import relax

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.relax_graph import operator_name
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.tasks.extract import NotTunable, kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.tvm.transform.weights.fold import fold_batch_norms, fold_weights
from tunefarm_tuning.workload.binding import Binding

CUDA = parse_target("cuda/sm_90")


def load(model: onnx.ModelProto, folder: Path, target: str = "host") -> RelaxNetwork:
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    return load_relax(path, Binding(), parse_target(target))


def kernel_names(loaded: RelaxNetwork) -> list[str]:
    return [kernel.name for kernel in primfunc_workloads(loaded.module)]


def check_numbers(model: onnx.ModelProto, folder: Path, *, scheduled: bool = False) -> RelaxNetwork:
    loaded = load(model, folder)
    inputs = random_inputs(loaded.inputs, seed=1)
    outputs = built_outputs(loaded, inputs, folder, scheduled=scheduled)
    expected = reference_outputs(folder / "model", loaded, inputs)
    for spec, ours, theirs in zip(loaded.outputs, outputs, expected, strict=True):
        assert (spec.shape, spec.dtype) == (theirs.shape, str(theirs.dtype))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    return loaded


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", sorted(onnx_models.ORDINARY))
def test_networks_compute_what_they_should(name: str, tmp_path: Path) -> None:
    check_numbers(onnx_models.ORDINARY[name](), tmp_path, scheduled=True)


def test_branches_compute_what_they_should(tmp_path: Path) -> None:
    check_numbers(onnx_models.branching(), tmp_path, scheduled=True)


def after_a_convolution(
    operator: str, *constants: NDArray[Any] | None, opset: int = 17, **attributes: Any
) -> Callable[[], onnx.ModelProto]:
    """A network of one convolution and one operator, whose constants are 8 channels of 8 x 8."""

    def build() -> onnx.ModelProto:
        g = GraphBuilder(seed=1)
        x = g.conv(g.input("x", [2, 4, 8, 8]), 4, 8)
        operands = ["" if constant is None else g.constant(np.asarray(constant)) for constant in constants]
        g.node(operator, x, *operands, out="y", **attributes)
        g.output("y", None, TensorProto.INT64 if operator.startswith("Arg") else TensorProto.FLOAT)
        return g.model(opset)

    return build


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def f32_scalar(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


CHANNELS = np.linspace(-1, 1, 8, dtype=np.float32)

FUSED = {
    "Clip": after_a_convolution("Clip", f32_scalar(-0.5), f32_scalar(0.5)),
    "Clip, low only": after_a_convolution("Clip", f32_scalar(0.1)),
    "Clip, high only": after_a_convolution("Clip", None, f32_scalar(0.1)),
    "Clip of opset 10": after_a_convolution("Clip", opset=10, min=0.0, max=0.5),
    "Clip, unbounded": after_a_convolution("Clip"),
    "HardSigmoid": after_a_convolution("HardSigmoid", alpha=0.3, beta=0.2),
    "HardSwish": after_a_convolution("HardSwish"),
    "LeakyRelu": after_a_convolution("LeakyRelu", alpha=0.2),
    "Max": after_a_convolution("Max", f32_scalar(0.1), CHANNELS.reshape(8, 1, 1)),
    "Min": after_a_convolution("Min", CHANNELS.reshape(1, 8, 1, 1)),
    "PRelu": after_a_convolution("PRelu", CHANNELS.reshape(8, 1, 1)),
    "Add by channel": after_a_convolution("Add", CHANNELS.reshape(8, 1, 1)),
    "Mul by column": after_a_convolution("Mul", CHANNELS),
    "Sub a number": after_a_convolution("Sub", f32(0.5)),
}

UNFUSED = {
    "Clip to NaN": after_a_convolution("Clip", f32_scalar(float("nan")), f32_scalar(0.5)),
    "LeakyRelu, steep": after_a_convolution("LeakyRelu", alpha=1.5),
    "LeakyRelu, backwards": after_a_convolution("LeakyRelu", alpha=-0.5),
    "Add of a higher rank": after_a_convolution("Add", CHANNELS[:2].reshape(2, 1, 1, 1, 1)),
    "Softmax by channel": after_a_convolution("Softmax", axis=1),
    "InstanceNormalization": after_a_convolution("InstanceNormalization", CHANNELS + 2, CHANNELS),
    "ConvTranspose": after_a_convolution("ConvTranspose", np.ones((8, 4, 3, 3), np.float32), strides=[2, 2]),
    "grouped Conv": after_a_convolution("Conv", np.ones((8, 2, 3, 3), np.float32), group=4),
    "Resize": after_a_convolution("Resize", None, f32(1, 1, 2, 2), mode="linear"),
    "Pad by channel": after_a_convolution("Pad", np.array([0, 1, 2, 3, 0, 1, 2, 3]), f32_scalar(0.5)),
    "Slice by channel": after_a_convolution(
        "Slice", np.array([2]), np.array([7]), np.array([1]), np.array([2])
    ),
    "ArgMax by channel": after_a_convolution("ArgMax", axis=1),
    "ReduceMean by channel": after_a_convolution("ReduceMean", axes=[1], keepdims=0),
    "Transpose": after_a_convolution("Transpose", perm=[3, 1, 0, 2]),
    "Flatten": after_a_convolution("Flatten"),
}


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize("name", sorted(FUSED))
def test_elementwise_operators_fuse_with_the_convolution_and_its_layout(name: str, tmp_path: Path) -> None:
    loaded = check_numbers(FUSED[name](), tmp_path)
    names = kernel_names(loaded)
    assert len(names) == 3, names
    assert "transpose" in names[0]
    assert "conv2d" in names[1]
    assert "transpose" in names[2]


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", sorted(UNFUSED))
def test_other_operators_survive_the_layout(name: str, tmp_path: Path) -> None:
    check_numbers(UNFUSED[name](), tmp_path)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", [*sorted(onnx_models.ORDINARY), "branching"])
def test_networks_go_through_for_a_gpu(name: str, tmp_path: Path) -> None:
    build = onnx_models.ORDINARY.get(name, onnx_models.branching)
    loaded = load(build(), tmp_path, "cuda/sm_90")
    assert all(
        kernel.not_tunable in (None, NotTunable.RESHAPE) for kernel in primfunc_workloads(loaded.module)
    )


def test_preparing_twice_gives_the_same_kernels(tmp_path: Path) -> None:
    first, second = (
        [
            (k.name, k.workload_key, k.weight)
            for k in primfunc_workloads(load(onnx_models.u_net(), tmp_path).module)
        ]
        for _ in range(2)
    )
    assert first == second


def test_kernels_that_cannot_be_tuned_say_why(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [3, 5])
    g.node("Reshape", x, g.ints(15), out="flat")
    g.node("Exp", g.input("s", [1, 1]), out="single")
    g.node("Relu", x, out="positive")
    g.node("TopK", x, g.ints(2), outputs=2)
    g.node("ReduceSum", g.node("NonZero", x), keepdims=0, out="places")
    g.output("flat", [15])
    g.output("single", [1, 1])
    g.output("positive", [3, 5])
    g.output("topk3_0", [3, 2])
    g.output("places", [], TensorProto.INT64)
    kernels = primfunc_workloads(load(g.model(), tmp_path).module)
    reasons = {kernel.name: kernel.not_tunable for kernel in kernels}
    expected = {
        "reshape": NotTunable.RESHAPE,
        "tir_exp": NotTunable.NO_LOOPS,
        "relu": None,
        "topk": NotTunable.EXTERN_CALL,
        "sum": NotTunable.SYMBOLIC_SHAPE,
    }
    assert expected.items() <= reasons.items(), reasons


def test_an_operator_without_a_kernel_is_refused_while_importing(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.node(
        "GridSample", g.input("x", [1, 2, 3, 4, 5]), g.input("grid", [1, 2, 2, 2, 3]), mode="bicubic", out="y"
    )
    g.output("y")
    with pytest.raises(InvalidModelError) as caught:
        load(g.model(opset=20), tmp_path)
    assert caught.value.code == "unsupported-operator"


def test_merged_batch_norms_need_no_compiler_to_fold() -> None:
    built = onnx_models.residual_net()
    merged = fold_batch_norms(import_bound(bind_model(built, Binding())).module)
    folded = fold_weights(merged)
    left = [binding.value.op.name for block in folded["main"].body.blocks for binding in block.bindings]
    assert set(left) == {
        *(
            "relax.nn.conv2d",
            "relax.add",
            "relax.nn.relu",
            "relax.nn.max_pool2d",
            "relax.mean",
            "relax.reshape",
        ),
        "relax.matmul",
    }
    tvm.ir.assert_structural_equal(relax.transform.FoldConstant()(folded), folded)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_batch_norms_of_every_width_are_merged(dtype: str, tmp_path: Path) -> None:
    """NumPy gives the expected values, since ONNX Runtime has no convolution of doubles."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(5, 4, 1, 1)).astype(dtype)
    scale, shift, mean, variance = rng.uniform(0.5, 1.5, (4, 5)).astype(dtype)
    g = GraphBuilder()
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = g.node("Conv", g.input("x", [1, 4, 6, 6], element), g.constant(weight))
    x = g.node("BatchNormalization", x, *map(g.constant, (scale, shift, mean, variance)))
    g.output(x, None, element)
    loaded = load(g.model(), tmp_path)
    value = rng.normal(size=(1, 4, 6, 6)).astype(dtype)
    (output,) = built_outputs(loaded, [value], tmp_path)
    wide = [vector.astype(np.float64).reshape(1, -1, 1, 1) for vector in (scale, shift, mean, variance)]
    conv = np.einsum("oc,bchw->bohw", weight[:, :, 0, 0].astype(np.float64), value.astype(np.float64))
    expected = (conv - wide[2]) / np.sqrt(wide[3] + 1e-5) * wide[0] + wide[1]
    error = {"float16": 2e-2, "float32": 1e-5, "float64": 1e-9}[dtype]
    assert output.dtype == dtype
    np.testing.assert_allclose(output, expected, rtol=error, atol=error)


def test_a_batch_norm_that_would_overflow_its_convolution_stays_apart(tmp_path: Path) -> None:
    g = GraphBuilder()
    half = helper.np_dtype_to_tensor_dtype(np.dtype("float16"))
    weight = np.full((5, 4, 1, 1), 100.0, np.float16)
    ones, zeros, small = (np.full(5, value, np.float16) for value in (1.0, 0.0, 1e-7))
    x = g.node("Conv", g.input("x", [1, 4, 6, 6], half), g.constant(weight))
    g.output(
        g.node("BatchNormalization", x, *map(g.constant, (ones, zeros, zeros, small)), epsilon=1e-8),
        None,
        half,
    )
    built = g.model()
    folded = fold_batch_norms(import_bound(bind_model(built, Binding())).module)
    assert "batch_norm" in folded.script()


def test_rows_of_transposes_are_one_or_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    g = GraphBuilder()
    x = g.input("x", [2, 3, 4, 5])
    for _ in range(4):
        y = x
        for _ in range(int(rng.integers(1, 6))):
            y = g.node("Transpose", y, perm=[int(axis) for axis in rng.permutation(4)])
        g.output(g.node("Abs", y))
    y = g.node("Transpose", g.node("Transpose", x, perm=[1, 2, 3, 0]), perm=[3, 0, 1, 2])
    g.output(g.node("Neg", y))
    loaded = check_numbers(g.model(), tmp_path)
    script = loaded.module.script()
    assert script.count("def transpose") + script.count("def fused_transpose") <= 4


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("exponent", "calls"), [(2.0, False), (3.0, False), (0.5, False), (1.0, False), (2.5, True)]
)
def test_a_square_and_a_root_are_no_powers(exponent: float, *, calls: bool, tmp_path: Path) -> None:
    """As an exporter writes a layer norm."""
    graph = GraphBuilder()
    x = graph.node("Abs", graph.input("x", [2, 8, 16]))
    power = graph.node("Pow", x, graph.constant(np.array(exponent, np.float32)))
    graph.output(graph.node("ReduceMean", power, axes=[-1]))
    loaded = check_numbers(graph.model(), tmp_path)
    assert ("tirx.pow" in loaded.module.script() or "T.pow" in loaded.module.script()) == calls


def test_a_power_that_makes_its_base_larger_stays(tmp_path: Path) -> None:
    graph = GraphBuilder()
    x = graph.node("Abs", graph.input("x", [8]))
    graph.output(graph.node("Pow", x, graph.constant(np.full((1, 3, 1), 2.0, np.float32))))
    check_numbers(graph.model(), tmp_path)


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize(
    ("kernel", "stride", "attributes", "rewritten"),
    [
        ([2, 2], [2, 2], {}, True),
        ([4, 4], [2, 2], {"pads": [1, 1, 1, 1]}, True),
        ([3, 3], [2, 2], {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}, True),
        ([3, 2], [2, 3], {"pads": [0, 1, 1, 0]}, True),
        ([5, 4], [3, 1], {"pads": [2, 0, 1, 3]}, True),
        ([3, 3], [1, 1], {}, True),
        ([2, 3], [4, 3], {}, True),
        ([2, 2], [2, 2], {"output_padding": [1, 1]}, False),
        ([3, 3], [2, 2], {"dilations": [2, 2]}, False),
        ([3, 4], [1, 2], {"dilations": [3, 1], "pads": [2, 1, 1, 0]}, True),
        ([2, 2], [2, 2], {"group": 2}, False),
    ],
)
def test_a_transposed_convolution_is_one_of_phases(
    kernel: list[int], stride: list[int], attributes: dict[str, Any], *, rewritten: bool, tmp_path: Path
) -> None:
    graph = GraphBuilder()
    x = graph.input("x", [2, 6, 5, 7])
    weight = graph.weight(6, 8 // attributes.get("group", 1), *kernel)
    conv = graph.node("ConvTranspose", x, weight, graph.weight(8), strides=stride, **attributes)
    graph.output(graph.node("Relu", conv))
    loaded = check_numbers(graph.model(), tmp_path)
    assert (
        any("transpose" in name and "conv2d_transpose" in name for name in kernel_names(loaded)) != rewritten
    )


@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "attributes"),
    [
        ([9], [8], [4], {"pads": [2, 2]}),
        ([5], [3], [2], {"pads": [0, 1], "output_padding": [1]}),
        ([5], [3], [2], {"group": 2}),
        ([5, 7], [3, 4], [2, 3], {"group": 2, "pads": [0, 1, 1, 0]}),
        ([3, 4, 5], [2, 3, 4], [2, 1, 3], {"pads": [0, 1, 0, 1, 1, 2]}),
    ],
)
def test_so_is_one_over_another_number_of_axes(
    sizes: list[int], kernel: list[int], stride: list[int], attributes: dict[str, Any], tmp_path: Path
) -> None:
    graph = GraphBuilder()
    groups = attributes.get("group", 1)
    inputs, outputs = (6, 8) if groups == 1 else (16 * groups, 18 * groups)
    x = graph.input("x", [2, inputs, *sizes])
    weights = graph.weight(inputs, outputs // groups, *kernel), graph.weight(outputs)
    graph.output(
        graph.node("Relu", graph.node("ConvTranspose", x, *weights, strides=stride, **attributes)), None
    )
    names = kernel_names(check_numbers(graph.model(), tmp_path))
    assert any(f"conv{len(sizes)}d" in name for name in names)
    assert not any(f"conv{len(sizes)}d_transpose" in name for name in names)


@pytest.mark.parametrize("sizes", [[9], [4, 5, 6]])
def test_convolutions_over_any_number_of_axes_have_channels_last(sizes: list[int], tmp_path: Path) -> None:
    graph = GraphBuilder()
    y, channels, ones = graph.input("x", [2, 4, *sizes]), 4, [1] * len(sizes)
    for group in (1, 8):
        weights = graph.weight(8, channels // group, *(3 * size for size in ones)), graph.weight(8)
        y = graph.node("Relu", graph.node("Conv", y, *weights, group=group, pads=[*ones, *ones]))
        channels = 8
    y = graph.node("MaxPool", y, kernel_shape=[3 * size for size in ones])
    graph.output(y, None)
    loaded = check_numbers(graph.model(), tmp_path)
    first, *_, last = kernel_names(loaded)
    assert "transpose" in first
    assert "transpose" in last
    for kernel in primfunc_workloads(loaded.module):
        if "conv" in kernel.name:
            assert kernel_args(kernel.module)[-1].shape == (2, *sizes, 8)


def test_a_transposed_convolution_of_double_precision_stays_such(tmp_path: Path) -> None:
    """ONNX Runtime has none, so there is only the import to look at."""
    graph = GraphBuilder()
    weight = graph.constant(np.ones((6, 8, 2, 2)))
    conv = graph.node(
        "ConvTranspose", graph.input("x", [1, 6, 5, 7], TensorProto.DOUBLE), weight, strides=[2, 2]
    )
    graph.output(conv, None, TensorProto.DOUBLE)
    (output,) = load(graph.model(), tmp_path).outputs
    assert (output.dtype, output.shape) == ("float64", (1, 8, 10, 14))


def test_small_repeated_constants_need_no_compiler_to_fold() -> None:
    g = GraphBuilder()
    sizes = g.ints(3, 2), g.ints(1 << 11, 1 << 10, 3, 2)
    x = g.input("x", [2])
    for size in sizes:
        x = g.node("Add", x, g.node("Expand", g.weight(2), size))
    g.output(g.node("ReduceMax", x, keepdims=0))
    imported = import_bound(bind_model(g.model(13), Binding())).module
    folded = fold_weights(imported)
    names = [
        operator_name(binding.value) for block in folded["main"].body.blocks for binding in block.bindings
    ]
    assert names.count("relax.broadcast_to") == 1, "the large one is left to TVM, which may run out of memory"
