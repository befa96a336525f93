"""Running a network in all legal ways, and trying the comparison that comes of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.reference.moved import moved_array
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session
from tunefarm_tuning.frontend.onnx.reference.variants import Variants
from tunefarm_tuning.reference.comparison import STEPS, TIES, compare_arrays
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.workload.task import TensorSpec


def ran(
    model: onnx.ModelProto, *, budget_sec: float = 60.0, seconds: float = 0.0
) -> tuple[Variants, list[Any]]:
    specs = bind_inputs(model.graph, {})
    source = model.SerializeToString()
    variants = Variants(source, model, specs, threads=1, budget_sec=budget_sec)
    session = open_session(source, 1, optimised=False)
    for kind in (InputKind.NORMAL, InputKind.POSITIVE):
        feeds = random_inputs(specs, seed=1, kind=kind)
        outputs = session.run(None, {spec.name: array for spec, array in zip(specs, feeds, strict=True)})
        variants.add(feeds, [np.asarray(output) for output in outputs], seconds)
    return variants, variants.run()


def convolutions(end: str, offset: float = 0.0) -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.input("x", [1, 3, 16, 16])
    for channels, before in ((8, 3), (8, 8), (4, 8)):
        x = g.node("Relu", g.node("Conv", x, g.weight(channels, before, 3, 3), g.weight(channels)))
    x = g.node("Add", x, g.constant(np.array([offset], np.float32)))
    g.output(g.node(end, x))
    return g.model()


def test_all_ways_are_run_and_a_layer_that_is_off_is_noticed() -> None:
    variants, expected = ran(convolutions("Tanh"))
    assert variants.report.float64
    assert len(variants.report.ways) == 6
    assert not variants.report.left_out
    assert (variants.report.noticed, variants.report.probes) == (3, 3)
    assert all(width.moved < 1e-5 for given in expected for width in given.widths)


def test_a_network_of_float16_may_be_off_by_what_that_rounds_also_where_float64_is_not_to_be_had() -> None:
    g, half = GraphBuilder(), TensorProto.FLOAT16
    weights = [
        g.constant(np.random.default_rng(1).standard_normal(shape).astype(np.float16))
        for shape in ((16, 16), (16,), (16, 16))
    ]
    x = g.node("Cast", g.input("x", [4, 16]), to=half)
    y = g.node("MatMul", x, weights[0])
    y = g.node("SkipLayerNormalization", x, y, weights[1], domain="com.microsoft")
    g.output(g.node("Cast", g.node("MatMul", y, weights[2]), to=TensorProto.FLOAT))
    variants, expected = ran(g.model(), budget_sec=10.0, seconds=1.0)
    assert not variants.report.float64
    (output,), (width,) = expected[0].outputs, expected[0].widths
    rounded = output * (
        1 + np.float32(2.0**-11) * np.sign(np.random.default_rng(2).standard_normal(output.shape))
    )
    assert compare_arrays("y", rounded.astype(np.float32), output, width=width).ok
    assert not compare_arrays("y", output * np.float32(1.05), output, width=width).ok


def test_weights_that_are_only_stored_as_float16_make_nothing_wider() -> None:
    g = GraphBuilder()
    stored = g.constant(np.random.default_rng(1).standard_normal((16, 16)).astype(np.float16))
    y = g.node("MatMul", g.input("x", [4, 16]), g.node("Cast", stored, to=TensorProto.FLOAT))
    g.output(g.node("SkipLayerNormalization", y, y, g.weight(16), domain="com.microsoft"))
    variants, expected = ran(g.model(), budget_sec=10.0, seconds=1.0)
    assert not variants.report.float64
    assert expected[0].widths[0].allowed.max() < 1e-3


def test_a_saturated_output_notices_nothing() -> None:
    variants, _ = ran(convolutions("Sigmoid", offset=80.0))
    assert (variants.report.noticed, variants.report.probes) == (0, 3)


def test_what_takes_too_long_is_left_out_and_told() -> None:
    variants, expected = ran(convolutions("Tanh"), budget_sec=1.0, seconds=100.0)
    assert len(variants.report.ways) == 1
    assert any("in float64: it would take about 1600 s" in reason for reason in variants.report.left_out)
    assert variants.report.probes == 0
    assert len(expected) == 2


def softmax_of(scale: float) -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.node("MatMul", g.input("x", [4, 64]), g.weight(64, 300))
    g.output(g.node("Softmax", g.node("Mul", x, g.constant(np.array([scale], np.float32)))))
    return g.model()


@pytest.mark.parametrize(
    "model", [softmax_of(1.0), softmax_of(30.0), convolutions("Exp"), convolutions("Sigmoid", -25.0)]
)
def test_float32_in_any_order_is_within_the_width(model: onnx.ModelProto) -> None:
    variants, expected = ran(model)
    assert variants.report.float64
    specs = bind_inputs(model.graph, {})
    for kind, given in zip((InputKind.NORMAL, InputKind.POSITIVE), expected, strict=True):
        feeds = random_inputs(specs, seed=1, kind=kind)
        ours = reordered(model, feeds[0])
        comparison = compare_arrays("y", ours, given.outputs[0], width=given.widths[0])
        assert comparison.ok, comparison


@pytest.mark.parametrize("offset", [-18.0, -20.0, -25.0, -60.0])
@pytest.mark.parametrize("gate", [False, True])
def test_sigmoids_near_zero_are_compared_where_float64_takes_too_long(offset: float, gate: bool) -> None:
    """ONNX Runtime's own sigmoid is the same everywhere below -18, in all of its runs."""
    model = convolutions("Sigmoid", offset)
    if gate:  # a value times its sigmoid, as SiLU is exported
        sigmoid = model.graph.node[-1]
        model.graph.node.add(op_type="Mul", input=[sigmoid.input[0], sigmoid.output[0]], output=["gated"])
        model.graph.output[0].name = "gated"
    logits = convolutions("Identity", offset)
    variants, expected = ran(model, budget_sec=15.0, seconds=1.0)
    assert not variants.report.float64
    assert "with sigmoids in float64" in variants.report.ways
    specs = bind_inputs(model.graph, {})
    for kind, given in zip((InputKind.NORMAL, InputKind.POSITIVE), expected, strict=True):
        x = reordered(logits, random_inputs(specs, seed=1, kind=kind)[0]).astype(np.float64)
        ours = ((x if gate else 1.0) / (1.0 + np.exp(-x))).astype(np.float32)
        (output,), (width,) = given.outputs, given.widths
        comparison = compare_arrays("y", ours, output, width=width)
        assert comparison.ok, comparison
        wrong = ours.copy()
        wrong[np.unravel_index(np.abs(output).argmax(), output.shape)] *= np.float32(1.01)
        for faulty in (wrong, ours * np.float32(1.001), np.zeros_like(ours)):
            assert not compare_arrays("y", faulty, output, width=width).ok


def test_a_network_that_jumps_is_run_with_a_larger_move() -> None:
    variants, _ = ran(convolutions("Floor"))
    assert len(variants.report.ways) == 7


def sorted_boxes(spread: float, seed: int) -> tuple[onnx.ModelProto, NDArray[Any], NDArray[Any]]:
    """Return a network that sorts boxes by scores, of which some nearly tie, as a detector does with proposals; and its weights."""
    g = GraphBuilder()
    x = g.input("x", [1, 64])
    rng = np.random.default_rng(seed)
    scores, boxes = (rng.standard_normal((64, size)).astype(np.float32) for size in (450, 1800))
    near = (rng.standard_normal((64, 1)) + spread * scores).astype(np.float32)
    each = g.node("Reshape", g.node("MatMul", x, g.constant(near)), g.ints(450))
    _, order = g.node("TopK", each, g.ints(450), outputs=2)
    table = g.node("Reshape", g.node("MatMul", x, g.constant(boxes)), g.ints(450, 4))
    g.output(g.node("Gather", table, order))
    return g.model(17), near, boxes


@pytest.mark.parametrize(("spread", "seed"), [(0.01, 4), (0.01, 5), (0.015, 4), (0.0002, 3)])
def test_scores_that_nearly_tie_may_be_sorted_in_either_order(spread: float, seed: int) -> None:
    """A Faster R-CNN was refused where three pairs of 450 proposals were turned, and at most two in a run of ONNX Runtime."""
    model, near, boxes = sorted_boxes(spread, seed)
    _, expected = ran(model)
    specs = bind_inputs(model.graph, {})
    for kind, given in zip((InputKind.NORMAL, InputKind.POSITIVE), expected, strict=True):
        (x,) = random_inputs(specs, seed=1, kind=kind)
        (output,), (width,) = given.outputs, given.widths
        table = (x @ boxes).reshape(450, 4)
        scores = np.zeros(450, np.float32)
        for order in (np.random.default_rng(number).permutation(64) for number in range(20)):
            scores = np.add.accumulate(x[0, order, None] * near[order], axis=0)[-1]
            ours = table[np.argsort(-scores, kind="stable")]
            comparison = compare_arrays("y", ours, output, width=width)
            assert comparison.ok, comparison
        faulty = table[np.argsort(-scores * np.linspace(1.0, 1.001, 450), kind="stable")]
        assert not compare_arrays("y", faulty, output, width=width).ok


def test_optimised_runs_that_round_weights_do_not_widen_anything() -> None:
    """ONNX Runtime packs a dequantised matrix, and computes with activations of 8 bits."""
    g = GraphBuilder()
    matrix = np.random.default_rng(5).integers(-128, 128, (256, 128)).astype(np.int8)
    dense = g.node("DequantizeLinear", g.constant(matrix), g.constant(np.array(1e-3, np.float32)))
    g.output(g.node("MatMul", g.input("x", [16, 256]), dense))
    variants, expected = ran(g.model())
    assert all(width.moved < 1e-5 for given in expected for width in given.widths)
    assert variants.report.noticed == variants.report.probes == 1
    assert any("far less exactly" in reason for reason in variants.report.left_out)


def reordered(model: onnx.ModelProto, x: NDArray[Any]) -> NDArray[Any]:
    """Return the output of the network with the channels of all inner results in the opposite order."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in twin.graph.initializer}
    layers = [node for node in twin.graph.node if node.op_type == "Conv"]
    for first, second in itertools.pairwise(layers):
        for name in first.input[1:]:
            _flip(weights[name], 0)
        _flip(weights[second.input[1]], 1)
    session = open_session(twin.SerializeToString(), 1, optimised=True)
    return np.asarray(session.run(None, {"x": x})[0])


def _flip(tensor: onnx.TensorProto, axis: int) -> None:
    values = np.ascontiguousarray(np.flip(onnx.numpy_helper.to_array(tensor), axis))
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


@pytest.mark.parametrize("written", ["fill", "weight"])
def test_equal_terms_may_be_added_one_after_the_other(written: str) -> None:
    terms, columns, share = 8192, 64, np.float32(0.02)
    g = GraphBuilder()
    x = g.node("Tile", g.input("x", [300, 1]), g.ints(1, terms))
    if written == "fill":
        value = onnx.numpy_helper.from_array(np.array([share]))
        weight = g.node("ConstantOfShape", g.ints(terms, columns), value=value)
    else:
        weight = g.constant(np.full((terms, columns), share))
    g.output(g.node("MatMul", x, weight))
    variants, expected = ran(g.model())
    for given, wanted in zip(variants._inputs, expected, strict=True):
        # Each addition of an equal term rounds in the same direction, until the sum doubles.
        products = np.repeat(given.feeds[0] * share, terms, axis=1)
        sums = np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1:]
        one_by_one = np.repeat(sums, columns, axis=1)
        (reference,), (width,) = wanted.outputs, wanted.widths
        assert compare_arrays("y", one_by_one, reference, width=width).ok
        assert not compare_arrays("y", one_by_one * np.float32(1.001), reference, width=width).ok


def feedback(steps: int) -> tuple[onnx.ModelProto, Any]:
    """Return a network that rounds its state to 8 bits in each step and stretches it, so that a tie grows; and its inputs."""
    g = GraphBuilder(seed=2)
    x = g.input("x", [64, 64])
    weights = g.constant((np.random.default_rng(2).normal(size=(64, 64)) / 2).astype(np.float32))
    for _ in range(steps):
        rounded, scale, zero = g.node("DynamicQuantizeLinear", x, outputs=3)
        x = g.node("Tanh", g.node("MatMul", g.node("DequantizeLinear", rounded, scale, zero), weights))
    g.output(x)
    model = g.model(17)
    return model, bind_inputs(model.graph, {})


@pytest.mark.parametrize(("steps", "grows"), [(1, False), (60, True)])
def test_a_network_with_feedback_that_rounds_may_be_as_far_off_as_its_own_runs(
    steps: int, grows: bool
) -> None:
    model, specs = feedback(steps)
    source = model.SerializeToString()
    variants = Variants(source, model, specs, threads=1, budget_sec=60.0)
    session = open_session(source, 1, optimised=False)
    feeds = random_inputs(specs, seed=1)
    (plain,) = session.run(None, {"x": feeds[0]})
    (moved,) = session.run(None, {"x": moved_array(feeds[0], 2.0**-22, np.random.default_rng(7))})
    variants.add(feeds, [plain], 0.0)
    expected = variants.run_steps()
    is_far = not compare_arrays("y", moved, plain, rounding=STEPS).ok
    assert is_far == grows
    if not grows:
        assert expected is None
        return
    assert expected is not None
    (width,) = expected[0].widths
    np.testing.assert_array_equal(expected[0].outputs[0], plain)
    assert width.moved > 0.1
    assert compare_arrays("y", moved, plain, rounding=STEPS, width=width).ok
    assert not compare_arrays("y", plain + 80 * np.abs(plain).max(), plain, rounding=STEPS, width=width).ok


def sums_of_bytes() -> tuple[onnx.ModelProto, list[TensorSpec]]:
    """A sum of 8-bit integers whose step is twice theirs: each other sum is a tie."""
    g = GraphBuilder()
    x, y = (g.input(name, [1, 4096], TensorProto.UINT8) for name in "xy")
    zero = g.constant(np.array(0, np.uint8))
    steps = [g.constant(np.array(step, np.float32)) for step in (0.0231, 0.0231, 0.0462)]
    inputs = [x, steps[0], zero, y, steps[1], zero, steps[2], zero]
    g.output(g.node("QLinearAdd", *inputs, domain="com.microsoft"), dtype=TensorProto.UINT8)
    model = g.model(17)
    return model, bind_inputs(model.graph, {})


def test_ties_of_integers_are_known_where_nothing_but_steps_can_move() -> None:
    model, specs = sums_of_bytes()
    source = model.SerializeToString()
    variants = Variants(source, model, specs, threads=1, budget_sec=60.0)
    feeds = random_inputs(specs, seed=1)
    (plain,) = open_session(source, 1, optimised=False).run(None, dict(zip("xy", feeds, strict=True)))
    variants.add(feeds, [plain], 0.0)
    (expected,) = variants.run()
    sums = feeds[0].astype(np.int64) + feeds[1]
    ties = (sums % 2 == 1) & (sums < 510)
    assert ties.sum() > 1000
    (width,) = expected.widths
    np.testing.assert_array_equal(np.isinf(width.allowed), ties)
    down = (sums // 2).astype(np.uint8)
    assert compare_arrays("y", down, plain, rounding=TIES, width=width).ok
    wrong = np.round(sums / 2 * 1.004).clip(0, 255).astype(np.uint8)
    assert not compare_arrays("y", wrong, plain, rounding=TIES, width=width).ok
