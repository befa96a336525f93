"""A network for a GPU launches runs of its kernels as CUDA graphs, unless memory of a kernel belongs to the calling thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tunefarm_tuning.target.parse import parse_target

tvm = pytest.importorskip("tvm")

GPU = parse_target("cuda/sm_90")
_CAPTURE = "vm.builtin.cuda_graph.run_or_capture"


def network() -> Any:
    """Return a network of four kernels: what reads its input and what writes its result cannot be part of a graph."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for op in (relax.op.nn.relu, relax.op.exp, relax.op.sin, relax.op.tanh):
                y = builder.emit(op(y))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return relax.transform.LegalizeOps()(builder.finalize())


def calls_of(module: Any, target: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the virtual machine would run, as text."""
    from tunefarm_tuning.tvm.codegen import graph_build

    built: list[Any] = []
    monkeypatch.setattr(graph_build, "_export", lambda library, *_: built.append(library))
    graph_build.build_model(module, target, path)
    return str(built[0].as_text())


def test_runs_of_kernels_are_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_of(network(), GPU, tmp_path / "net.so", monkeypatch).count(_CAPTURE) > 0


def test_what_runs_on_the_host_forbids_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part for ONNX Runtime, say: a graph would repeat the kernels around it, and leave it out."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.exp(builder.emit(relax.op.nn.relu(x))))
            y = builder.emit(
                relax.op.call_pure_packed("a.library", y, ty_args=[relax.TensorType((64, 64), "float32")])
            )
            result = builder.emit_output(relax.op.tanh(builder.emit(relax.op.sin(y))))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps()(builder.finalize())
    text = calls_of(module, GPU, tmp_path / "net.so", monkeypatch)
    assert "a.library" in text
    assert _CAPTURE not in text


def test_memory_between_the_launches_of_a_kernel_forbids_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from a pool of the calling thread. A graph would use it after that thread has ended."""
    from tunefarm_tuning.tvm.codegen import graph_build

    monkeypatch.setattr(graph_build, "workspaces_of", lambda _: ["sums"])
    assert _CAPTURE not in calls_of(network(), GPU, tmp_path / "net.so", monkeypatch)
