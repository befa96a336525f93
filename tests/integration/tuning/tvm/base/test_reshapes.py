"""A network's result that only reshapes what a kernel wrote is a view of it, in memory that each call gets anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from tvm import relax

from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.reshapes import view_reshapes
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import load_relax

HOST = parse_target("host")


def prepared(folder: Path, *operators: str) -> tvm.IRModule:
    graph = GraphBuilder()
    value = graph.input("x", (4, 6))
    for operator in operators:
        value = graph.node(operator, value)
    graph.output(graph.node("Reshape", value, graph.ints(2, 2, 6)), (2, 2, 6))
    path = folder / "net.onnx"
    onnx.save(graph.model(), path)
    return load_relax(path, import_model(path).binding, HOST).module


def softmax(x: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(x)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("operators", [("Softmax",), ()], ids=["of a kernel's", "of an input"])
def test_the_only_output_is_a_view(tmp_path: Path, operators: tuple[str, ...]) -> None:
    module = prepared(tmp_path, *operators)
    assert str(module["main"]).count("R.call_tir(") == len(operators) + 1
    viewed = str(view_reshapes(module)["main"])
    assert viewed.count("R.call_tir(") == len(operators)
    assert viewed.count("R.reshape(") == 1


def test_each_call_returns_memory_of_its_own(tmp_path: Path) -> None:
    library = tmp_path / "net.so"
    build_model(prepared(tmp_path, "Softmax", "Softmax", "Exp"), HOST, library)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    inputs = [np.random.default_rng(seed).random((4, 6), np.float32) for seed in range(3)]
    results = [machine["main"](tvm.runtime.tensor(x)) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        expected = np.exp(softmax(softmax(x))).reshape(2, 2, 6)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)
