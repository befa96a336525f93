"""Large attentions become one kernel each, with the same results; others stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import GraphBuilder
from onnx_reference import checked_network

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import NotTunable, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision

HEADS, ROWS, SIZE = 4, 384, 16
Steps = Callable[[GraphBuilder, str], str]


def scaled(g: GraphBuilder, scores: str) -> str:
    return g.node("Div", scores, g.constant(np.array(4.0, np.float32)))


def masked_by_an_input(g: GraphBuilder, scores: str) -> str:
    return g.node(
        "Add", g.input("mask", [1, 1, 1, ROWS]), g.node("Mul", g.constant(np.array(0.25, np.float32)), scores)
    )


def masked_by_weights(g: GraphBuilder, scores: str) -> str:
    mask = np.triu(np.full((ROWS, ROWS), -1e9, np.float32), 1)
    return g.node("Add", g.node("Sub", scores, g.constant(mask)), g.weight(HEADS, 1, 1))


def kept_by_a_mask(g: GraphBuilder, scores: str) -> str:
    mask = g.constant(np.tril(np.ones((ROWS, ROWS), bool)))
    return g.node("Where", mask, scores, g.constant(np.array(-np.inf, np.float32)))


def added_in_other_shapes(g: GraphBuilder, scores: str) -> str:
    """As exporters write it that multiply all heads of all samples as one batch."""
    flat = g.node("Reshape", scores, g.ints(2 * HEADS, ROWS, ROWS))
    biased = g.node(
        "Reshape", g.node("Add", flat, g.weight(2 * HEADS, 1, ROWS)), g.ints(2, HEADS, ROWS, ROWS)
    )
    return g.node("Add", biased, g.weight(HEADS, ROWS, 1))


def network(
    steps: Steps, *, rows: int = ROWS, with_scores: bool = False, axis: int = -1, without_nan: bool = False
) -> GraphBuilder:
    """One attention over projections of an input, with heads by reshapes and transposes, as exporters write it."""
    g = GraphBuilder(seed=11)
    x = g.input("x", [2, rows, HEADS * SIZE])

    def heads(order: list[int]) -> str:
        projected = g.node("MatMul", x, g.weight(HEADS * SIZE, HEADS * SIZE))
        return g.node("Transpose", g.node("Reshape", projected, g.ints(2, rows, HEADS, SIZE)), perm=order)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = g.node("Softmax", steps(g, g.node("MatMul", query, key)), axis=axis)
    if without_nan:
        zero = g.constant(np.array(0.0, np.float32))
        scores = g.node("Where", g.node("IsNaN", scores), zero, scores)
    joined = g.node("Transpose", g.node("MatMul", scores, value), perm=[0, 2, 1, 3])
    g.output(g.node("Reshape", joined, g.ints(2, rows, HEADS * SIZE)))
    if with_scores:
        g.output(scores)
    return g


def attentions(loaded: RelaxNetwork) -> int:
    return sum(kernel.not_tunable is NotTunable.ATTENTION for kernel in primfunc_workloads(loaded.module))


@pytest.mark.parametrize(
    "steps",
    [
        scaled,
        masked_by_an_input,
        masked_by_weights,
        kept_by_a_mask,
        added_in_other_shapes,
        lambda _g, scores: scores,
    ],
)
def test_an_attention_is_one_kernel(steps: Steps, tmp_path: Path) -> None:
    loaded = checked_network(network(steps), tmp_path)
    assert attentions(loaded) == 1
    assert not any("softmax" in kernel.name for kernel in primfunc_workloads(loaded.module))


def test_rows_without_keys_are_zero_where_the_network_says_so(tmp_path: Path) -> None:
    def without_the_last_row(g: GraphBuilder, scores: str) -> str:
        mask = np.zeros((ROWS, 1), np.float32)
        mask[-1] = -np.inf
        return g.node("Add", scores, g.constant(mask))

    assert attentions(checked_network(network(without_the_last_row, without_nan=True), tmp_path)) == 1


@pytest.mark.parametrize(
    "unlike",
    [
        lambda: network(scaled, rows=64),
        lambda: network(scaled, with_scores=True),
        lambda: network(scaled, axis=2),
        lambda: network(lambda g, scores: g.node("Tanh", scores)),
    ],
    ids=["few scores", "scores are a result", "softmax of rows", "another step"],
)
def test_others_stay_as_they_are(unlike: Callable[[], GraphBuilder], tmp_path: Path) -> None:
    assert attentions(checked_network(unlike(), tmp_path)) == 0


def test_a_vector_has_no_heads(tmp_path: Path) -> None:
    g = GraphBuilder(seed=11)
    scores = g.node("Softmax", g.node("MatMul", g.input("x", [16]), g.weight(16, 256)), axis=-1)
    g.output(g.node("MatMul", scores, g.weight(256, 10)))
    assert attentions(checked_network(g, tmp_path)) == 0


def test_heads_may_share_a_query_and_scores_may_be_read_twice(tmp_path: Path) -> None:
    """Neither is fused: the scores have other heads than the query, or another reader."""
    for is_read_twice in (False, True):
        g = GraphBuilder(seed=11)
        query = g.input("x", [HEADS if is_read_twice else 1, ROWS, SIZE])
        scores = g.node("Softmax", g.node("MatMul", query, g.weight(HEADS, SIZE, ROWS)), axis=-1)
        result = g.node("MatMul", scores, g.weight(HEADS, ROWS, SIZE))
        most = g.node("ReduceMax", scores, axes=[-1])
        g.output(g.node("Add", result, most) if is_read_twice else result)
        assert attentions(checked_network(g, tmp_path)) == 0


def test_a_long_chain_of_steps_is_no_attention(tmp_path: Path) -> None:
    def chain(g: GraphBuilder, scores: str) -> str:
        for _ in range(300):
            scores = g.node("Add", scores, g.constant(np.array(0.01, np.float32)))
        return scores

    path = tmp_path / "model.onnx"
    onnx.save(network(chain).model(), path)
    assert attentions(load_relax(path, Binding(), parse_target("host"))) == 0


def test_products_in_bfloat16_stay_products(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(scaled).model(), path)
    target = parse_target("llvm -mcpu=sapphirerapids")
    assert attentions(load_relax(path, Binding(), target)) == 1
    assert attentions(load_relax(path, Binding(), target, Precision.BFLOAT16)) == 0


def test_all_cpus_have_the_same_tasks(tmp_path: Path) -> None:
    """What is fused depends on the network alone; how its kernel is cut depends on the CPU."""
    path = tmp_path / "model.onnx"
    onnx.save(network(scaled).model(), path)
    targets = [
        "llvm -mcpu=haswell",
        "llvm -mcpu=skylake-avx512",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    ]
    kernels = [
        primfunc_workloads(load_relax(path, Binding(), parse_target(target)).module) for target in targets
    ]
    tasks = [{kernel.workload_key for kernel in each if kernel.not_tunable is None} for each in kernels]
    assert tasks[0] == tasks[1] == tasks[2]
