"""Recurrent layers have one kernel for all steps on CPUs; `test_onnx_opsets` tests their results."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx_models import GraphBuilder
from onnx_reference import checked_network

from tunefarm_tuning import Precision, compile, import_model  # noqa: A004
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.tasks.extract import NotTunable, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

ANY_CPU = Target.from_json({"kind": "llvm", "opt-level": 0})


def network(steps: int = 6) -> onnx.ModelProto:
    """Two layers, the second both ways, and a dense one behind."""
    g = GraphBuilder(seed=3)
    x = g.input("x", [steps, 2, 32])
    first = g.node(
        "LSTM", x, g.weight(1, 128, 32), g.weight(1, 128, 32), g.weight(1, 256), hidden_size=32, outputs=1
    )
    rows = g.node("Reshape", first, g.ints(steps, 2, 32))
    weights = [g.weight(2, 96, 32), g.weight(2, 96, 32)]
    second = g.node("GRU", rows, *weights, hidden_size=32, direction="bidirectional", outputs=2)
    flat = g.node("Reshape", g.node("Transpose", second[1], perm=[1, 0, 2]), g.ints(2, 64))
    g.output(g.node("MatMul", flat, g.weight(64, 10)))
    return g.model(17)


def written(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_the_number_of_kernels_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    kernels = {
        steps: primfunc_workloads(load_relax(written(network(steps), tmp_path), Binding(), ANY_CPU).module)
        for steps in (6, 60)
    }
    assert len(kernels[6]) == len(kernels[60])
    recurrent = [kernel.name for kernel in kernels[60] if kernel.not_tunable is NotTunable.RECURRENT]
    assert sorted(name.rstrip("0123456789") for name in recurrent) == ["gru", "lstm"], (
        "one for both directions"
    )
    products = [kernel for kernel in kernels[60] if "matmul" in kernel.name]
    assert products
    assert all(product.not_tunable is None for product in products), "the products with the inputs are tuned"


@pytest.mark.parametrize(("hidden", "at_once"), [(24, 2), (512, 32)], ids=["a thread each", "shared steps"])
def test_both_directions_are_computed(hidden: int, at_once: int, tmp_path: Path) -> None:
    """Each direction has a thread; if a step is long, they run one after the other, with parallel tiles."""
    g = GraphBuilder(seed=3)
    weights = [g.weight(2, 4 * hidden, 8), g.weight(2, 4 * hidden, hidden)]
    g.output(
        g.node(
            "LSTM",
            g.input("x", [3, 1, 8]),
            *weights,
            hidden_size=hidden,
            direction="bidirectional",
            outputs=1,
        )
    )
    loaded = checked_network(g, tmp_path)
    (kernel,) = (candidate for candidate in primfunc_workloads(loaded.module) if candidate.name == "lstm")
    assert f"T.parallel({at_once})" in kernel.module.script()


def test_a_gpu_is_refused_by_the_operators_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="LSTM is compiled for CPUs only") as caught:
        load_relax(written(network(), tmp_path), Binding(), parse_target("cuda/sm_80"))
    assert caught.value.code == "unsupported-operator"
    assert caught.value.fields["operator"] == "LSTM"


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", [Precision.AS_MODEL, Precision.FLOAT16_WEIGHTS])
def test_a_network_compiles_and_agrees(precision: Precision, tmp_path: Path) -> None:
    model = import_model(written(network(), tmp_path))
    artifact = compile(
        model, target="host", output=tmp_path / "model.tunefarm", precision=precision, baseline=False
    )
    assert artifact.report["checks"]["ok"]
    assert {kernel["name"]: kernel["reason"] for kernel in artifact.report["not_tunable"]}[
        "lstm"
    ] == "recurrent"
