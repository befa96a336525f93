"""Kernels have a bounded number of operators: scheduling one takes time by its square."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_models import GraphBuilder
from onnx_reference import built_outputs
from tvm import tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.transform.passes import MAX_FUSED
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding


def test_a_long_chain_becomes_several_kernels(tmp_path: Path) -> None:
    g = GraphBuilder()
    value = x = g.input("x", [2, 3])
    expected = given = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for _ in range(MAX_FUSED):
        value = g.node("Add", g.node("Sin", value), x)
        expected = np.sin(expected) + given
    g.output(value)
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    network = load_relax(path, Binding(), parse_target("host"))
    kernels = [func for func in network.module.functions.values() if isinstance(func, tirx.PrimFunc)]
    stages = [sum(isinstance(node, tirx.BufferStore) for node in walk(func.body)) for func in kernels]
    assert sum(stages) == 2 * MAX_FUSED
    assert max(stages) <= MAX_FUSED
    (output,) = built_outputs(network, [given], tmp_path)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_a_concatenation_of_many_parts_is_computed_once(tmp_path: Path) -> None:
    g = GraphBuilder()
    table = g.node("Concat", *[g.input(f"x{i}", [4, 1]) for i in range(20)], axis=1)
    cube = g.node("Mul", g.node("Mul", table, g.node("Neg", table)), g.node("Abs", table))
    g.output(g.node("Add", g.node("Sub", cube, g.node("Floor", table)), g.node("Ceil", table)))
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    target = parse_target("host")
    network = load_relax(path, Binding(), target)
    (kernel,) = (func for func in network.module.functions.values() if isinstance(func, tirx.PrimFunc))
    assert str(packed_default_schedule(kernel, target).func).count("if_then_else") <= 20
