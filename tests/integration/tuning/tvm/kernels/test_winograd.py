"""Winograd convolution has the results of the direct one, whatever is fused onto it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_reference import module_outputs
from tvm import relax

import tunefarm_tuning
from tunefarm_tuning import apply_history_best, extract_tasks, import_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.testing.records import applicable_records
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.kernels import winograd
from tunefarm_tuning.tvm.kernels.direct_conv import match_direct_conv
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16
from tunefarm_tuning.tvm.tasks.alternatives import (
    Alternative,
    alternative_tasks,
    find_alternatives,
    put_alternatives_in,
    winograd_alternative,
)
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads, tasks_of
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

CPU = parse_target("llvm -num-cores=2")


def conv_net(
    *,
    size: tuple[int, int] = (14, 14),
    channels: tuple[int, int] = (32, 32),
    batch: int = 1,
    after: str = "relu",
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    layers: int = 1,
) -> onnx.ModelProto:
    """Return a chain of convolutions, each with a bias and an activation."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    inner, outer = channels
    for i in range(layers):
        w = rng.normal(0.0, (2.0 / (kernel * kernel * inner)) ** 0.5, (outer, inner, kernel, kernel))
        weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(rng.normal(0.0, 0.1, outer).astype(np.float32), f"b{i}"))
        nodes.append(
            helper.make_node(
                "Conv",
                [x, f"w{i}", f"b{i}"],
                [f"c{i}"],
                kernel_shape=[kernel, kernel],
                strides=[stride, stride],
                pads=[pad] * 4,
            )
        )
        if after == "residual":
            nodes.append(helper.make_node("Add", [f"c{i}", x], [f"a{i}"]))
            nodes.append(helper.make_node("Relu", [f"a{i}"], [f"y{i}"]))
        elif after == "silu":
            nodes.append(helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"]))
            nodes.append(helper.make_node("Mul", [f"c{i}", f"s{i}"], [f"y{i}"]))
        else:
            nodes.append(helper.make_node("Relu", [f"c{i}"], [f"y{i}"]))
        x, inner = f"y{i}", outer
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels[0], *size])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "net.onnx"
    onnx.save(model, path)
    return import_model(path)


def prepared(model: onnx.ModelProto, folder: Path, target: Target = CPU) -> tvm.IRModule:
    held = imported(model, folder)
    return load_relax(held.path, held.binding, target).module


def run(module: tvm.IRModule, x: NDArray[np.float32], folder: Path) -> NDArray[np.float32]:
    (output,) = module_outputs(module, [x], folder)
    return output


def every_winograd(module: tvm.IRModule) -> list[Alternative]:
    """Return Winograd's algorithms for all that they can do, worth a trial or not."""
    alternatives = []
    for kernel in primfunc_workloads(module):
        conv = match_direct_conv(module[kernel.name])
        if conv is not None:
            forms = [(m, 0) for m in winograd.TILES]
            if conv.kind is BFLOAT16 and conv.data_shape[3] % 2 == 0:
                forms.append((2, conv.lanes))
            for form in forms:
                alternative = winograd_alternative(module[kernel.name], kernel, conv, *form)
                assert alternative is not None
                alternatives.append(alternative)
    return alternatives


@pytest.mark.matrix(every=8, each_value=False)
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"size": (13, 7)},
        {"size": (9, 10), "pad": 0},
        {"batch": 2, "channels": (16, 48)},
        {"channels": (20, 36)},
        {"channels": (21, 21), "after": "residual"},
        {"after": "residual"},
        {"after": "silu"},
    ],
    ids=["plain", "odd", "unpadded", "batch", "channels", "ragged", "residual", "silu"],
)
def test_the_results_are_those_of_the_direct_convolution(changed: dict[str, object], tmp_path: Path) -> None:
    model = conv_net(**changed)  # type: ignore[arg-type]
    module = prepared(model, tmp_path)
    dims = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=dims).astype(np.float32)
    expected = run(module, x, tmp_path)
    alternatives = every_winograd(module)
    assert [alternative.algorithm for alternative in alternatives] == ["winograd-2", "winograd-4"]
    for alternative in alternatives:
        changed_module = put_alternatives_in(
            module, alternatives, {alternative.workload_key: alternative.algorithm}
        )
        names = {variable.name_hint for variable in changed_module.get_global_vars()}
        assert alternative.instead_of not in names
        assert {alternative.tuned.name, *alternative.fixed} <= names
        actual = run(changed_module, x, tmp_path)
        np.testing.assert_allclose(
            actual, expected, rtol=1e-3, atol=2e-4 * float(np.sqrt(np.mean(expected**2)))
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "changed", [{}, {"size": (9, 10), "channels": (20, 36), "after": "residual"}, {"pad": 0}]
)
def test_a_convolution_of_bfloat16_has_it_in_either(changed: dict[str, Any], tmp_path: Path) -> None:
    zen4 = parse_target("llvm -mcpu=znver4")
    if changed.get("after") == "residual":
        changed = changed | {"channels": (36, 36)}
    held = imported(conv_net(layers=2, **changed), tmp_path)
    module = load_relax(held.path, held.binding, zen4, Precision.BFLOAT16).module
    names = [kernel.name for kernel in primfunc_workloads(module)]
    direct = [name for name in names if "bfloat16_conv2d" in name]
    alternatives = every_winograd(module)
    assert {alternative.instead_of for alternative in alternatives} == set(direct)
    assert len(direct) == 2
    (spec,) = load_relax(held.path, held.binding, CPU).inputs
    x = np.random.default_rng(1).normal(size=spec.shape).astype(np.float32)
    expected = run(module, x, tmp_path)
    for m in ("winograd-2", "winograd-4"):
        choices = {alternative.workload_key: m for alternative in alternatives}
        actual = run(put_alternatives_in(module, alternatives, choices), x, tmp_path)
        # Both convolutions round their activations; which way depends on the last digits of the first one's sums.
        np.testing.assert_allclose(
            actual, expected, rtol=2e-2, atol=4e-3 * float(np.sqrt(np.mean(expected**2)))
        )
    choices = {alternative.workload_key: "winograd-2-bfloat16" for alternative in alternatives}
    narrow = put_alternatives_in(module, alternatives, choices)
    code = kernel_code(narrow, next(name for name in names_of(narrow) if name.endswith("_matmul")), zen4)
    assert "vdpbf16ps" in code
    # Tiles and weights are rounded once more than by the direct convolution, each to 2^-9 of itself.
    off = run(narrow, x, tmp_path) - expected
    assert np.sqrt(np.mean(off**2)) < 8e-3 * np.sqrt(np.mean(expected**2))
    assert np.max(np.abs(off)) < 5e-2 * np.sqrt(np.mean(expected**2))


def names_of(module: tvm.IRModule) -> list[str]:
    return [str(variable.name_hint) for variable in module.get_global_vars()]


def kernel_code(module: tvm.IRModule, name: str, target: Target) -> str:
    """Return the assembly of one of a network's kernels by its default schedule."""
    scheduled = default_schedule(module[name].with_attr("global_symbol", "main"), target)
    return str(tvm.tirx.build(tvm.IRModule({"main": scheduled}), tvm_target(target)).inspect_source("asm"))


def test_products_of_bfloat16_are_tried_first_where_they_take_less(tmp_path: Path) -> None:
    zen4 = parse_target("llvm -mcpu=znver4 -num-cores=2")
    held = imported(conv_net(size=(14, 14), channels=(256, 256)), tmp_path)
    module = load_relax(held.path, held.binding, zen4, Precision.BFLOAT16).module
    assert find_alternatives(module, zen4)[0].algorithm == "winograd-2-bfloat16"


@pytest.mark.exhaustive
def test_a_convolution_of_two_rows_of_bfloat16_has_the_same_weights_in_it(tmp_path: Path) -> None:
    held = imported(conv_net(size=(9, 10), channels=(20, 38)), tmp_path)
    transformed = []
    for name in ("llvm -mcpu=znver4", "llvm -mcpu=generic -mattr=+bf16 -mtriple=aarch64-linux-gnu"):
        module = load_relax(held.path, held.binding, parse_target(name), Precision.BFLOAT16).module
        (alternative,) = [item for item in every_winograd(module) if item.algorithm == "winograd-4"]
        changed = put_alternatives_in(module, [alternative], {alternative.workload_key: "winograd-4"})
        nodes: list[Any] = []
        relax.analysis.post_order_visit(changed["main"], nodes.append)
        values = [getattr(node, "value", None) for node in nodes]
        arrays = [value.numpy() for value in values if isinstance(value, tvm.runtime.Tensor)]
        transformed.append(max(arrays, key=lambda array: array.size))
    assert transformed[0].dtype == np.float32
    np.testing.assert_array_equal(*transformed)


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize(
    "changed",
    [{"stride": 2}, {"kernel": 1, "pad": 0}, {"kernel": 5, "pad": 2}, {"pad": 2}],
    ids=["stride", "1x1", "5x5", "more padding"],
)
def test_other_convolutions_are_left_alone(changed: dict[str, object], tmp_path: Path) -> None:
    module = prepared(conv_net(**changed), tmp_path)  # type: ignore[arg-type]
    assert find_alternatives(module, CPU) == []


@pytest.mark.exhaustive
def test_weights_that_are_inputs_are_left_alone(tmp_path: Path) -> None:
    model = conv_net(size=(28, 28), channels=(64, 64))
    weights = model.graph.initializer.pop(0)
    model.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, list(weights.dims)))
    assert find_alternatives(prepared(model, tmp_path), CPU) == []


@pytest.mark.exhaustive
def test_only_what_should_win_is_worth_a_trial(tmp_path: Path) -> None:
    wide = find_alternatives(prepared(conv_net(size=(28, 28), channels=(64, 64)), tmp_path), CPU)
    assert [alternative.algorithm for alternative in wide] == ["winograd-4"]
    # Few positions and many weights: fetching these is what takes the time, and Winograd has more of them.
    deep = find_alternatives(prepared(conv_net(size=(4, 4), channels=(256, 256)), tmp_path), CPU)
    assert [alternative.algorithm for alternative in deep] == []
    thin = find_alternatives(prepared(conv_net(size=(28, 28), channels=(3, 64)), tmp_path), CPU)
    assert [alternative.algorithm for alternative in thin] == []


@pytest.mark.exhaustive
def test_layers_that_differ_only_in_what_follows_share_a_task(tmp_path: Path) -> None:
    first = conv_net(size=(28, 28), channels=(64, 64), layers=3)
    first.graph.node[-1].op_type = "Tanh"
    module = prepared(first, tmp_path)
    tasks = alternative_tasks(find_alternatives(module, CPU), CPU)
    assert len(tasks) == 1
    direct = [task for task in tasks_of(primfunc_workloads(module), CPU) if "conv2d" in task.workload.name]
    assert tasks[0].alternative is not None
    assert set(tasks[0].alternative.instead_of) == {task.workload.key for task in direct}
    assert len(direct) == 2
    assert tasks[0].weight == 3
    assert 0 < tasks[0].alternative.overhead < 2


def test_tasks_of_alternatives_come_last_and_only_if_asked_for(tmp_path: Path) -> None:
    model = imported(conv_net(size=(28, 28), channels=(64, 64)), tmp_path)
    plain = extract_tasks(model, CPU, alternatives=False)
    tasks = extract_tasks(model, CPU)
    assert tasks[: len(plain)] == plain
    assert all(task.alternative is None for task in plain)
    (added,) = tasks[len(plain) :]
    assert added.alternative is not None
    assert added.alternative.algorithm == "winograd-4"
    assert set(added.alternative.instead_of) <= {task.workload.key for task in plain}
    assert [arg.shape for arg in added.workload.args] == [(36, 49, 64), (36, 64, 64), (36, 49, 64)]


@pytest.mark.exhaustive
def test_a_gpu_has_no_alternatives(tmp_path: Path) -> None:
    gpu = parse_target("cuda -arch=sm_90")
    module = prepared(conv_net(size=(28, 28), channels=(64, 64)), tmp_path, gpu)
    assert find_alternatives(module, gpu) == []


def test_transformed_weights_are_exact_to_the_last_digits() -> None:
    weights = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)
    for m in winograd.TILES:
        transformed = winograd.transform_weights(weights, m)
        assert transformed.shape == ((m + 2) ** 2, 4, 5)
        np.testing.assert_allclose(transformed[0], weights[0, 0] * (1.0 if m == 2 else 1 / 16), rtol=1e-6)
        np.testing.assert_allclose(transformed[-1], weights[2, 2], rtol=1e-6)


@pytest.mark.exhaustive
def test_a_compile_says_what_became_of_each_alternative(tmp_path: Path) -> None:
    model = imported(conv_net(size=(16, 16), after="residual"), tmp_path)
    records = applicable_records(model)
    limits = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
    with apply_history_best(records) as history:
        artifact = tunefarm_tuning.compile(model, "host", output=tmp_path / "net", limits=limits)
    candidates = artifact.report["alternatives"]["candidates"]
    assert [candidate["algorithm"] for candidate in candidates] == ["winograd-4"]
    hits = {hit.workload_key for hit in history.coverage.hits}
    for candidate in candidates:
        assert candidate["weight"] == 1
        assert len(candidate["kernels_sec"]) == 3
        assert candidate["sum_sec"] == pytest.approx(sum(candidate["kernels_sec"].values()))
        assert (
            candidate["chosen"] or candidate["reason"]
        )  # which of them depends on random kernels, and on the machine
    chosen = [candidate for candidate in candidates if candidate["chosen"]]
    assert len(chosen) <= 1
    assert (candidates[0]["workload_key"] in hits) != bool(chosen)
    assert artifact.report["checks"]["ok"]
    if chosen:
        sec = artifact.report["alternatives"]["networks_sec"]
        assert sec["chosen"] <= sec["direct"]
