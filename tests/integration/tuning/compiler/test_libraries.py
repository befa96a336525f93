"""Compiling for a target with libraries: they are tried, the artifact says what it calls, and a device without them needs none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import GraphBuilder
from onnx_reference import library_outputs

import tunefarm_tuning
from tunefarm_tuning import Model, extract_tasks, import_model
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.artifact.onednn_library import load_onednn
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.onednn import why_no_calls

HERE = Target.from_json({**detect_host_target().to_json(), "libs": ["dnnl"]})
pytestmark = pytest.mark.skipif(
    bool(why_no_calls(HERE)) or not load_onednn(), reason="oneDNN is for x86 CPUs, from tunefarm[onednn]"
)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    graph = GraphBuilder()
    graph.output(graph.node("Relu", graph.conv(graph.input("x", [1, 512, 7, 7]), 512, 512)))
    onnx.save(graph.model(), tmp_path / "net.onnx")
    return import_model(tmp_path / "net.onnx")


def test_a_library_is_tried_as_another_algorithm(model: Model, tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(model, HERE, output=tmp_path / "a.tunefarm", baseline=False)
    candidates = artifact.report["alternatives"]["candidates"]
    by_library = [candidate for candidate in candidates if candidate["algorithm"] == "onednn"]
    assert [candidate["library"] for candidate in by_library] == [f"onednn {load_onednn()}"]
    assert by_library[0]["sum_sec"] > 0
    chosen = {"onednn": load_onednn()} if by_library[0]["chosen"] else {}
    assert artifact.manifest.get("libraries", {}) == chosen
    assert artifact.manifest["target"] == HERE.without_libraries().to_json()
    assert artifact.report["checks"]["ok"]
    x = np.ones((1, 512, 7, 7), np.float32)
    assert np.isfinite(next(iter(load(tmp_path / "a.tunefarm")(x).values()))).all()


@pytest.mark.exhaustive
def test_nothing_is_tried_that_the_target_does_not_ask_for(model: Model, tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(
        model, HERE.without_libraries(), output=tmp_path / "a.tunefarm", baseline=False
    )
    assert all(not candidate["library"] for candidate in artifact.report["alternatives"]["candidates"])


@pytest.mark.exhaustive
def test_a_network_of_library_calls_is_built_in_the_compilers_sandbox(model: Model, tmp_path: Path) -> None:
    session = CompileSession(model, HERE.without_libraries(), tmp_path, CompileLimits(), libraries=("dnnl",))
    try:
        (by_library,) = (info for info in session.load().alternatives if info.library)
        for name, choices in {"own": {}, "library": {by_library.workload_key: by_library.algorithm}}.items():
            session.build_model(tmp_path / f"{name}.so", {}, choices)
    finally:
        session.close()
    x = np.random.default_rng(0).normal(size=(1, 512, 7, 7)).astype(np.float32)
    (own,), (library,) = (
        library_outputs(tmp_path / f"{name}.so", "main", [x]) for name in ("own", "library")
    )
    np.testing.assert_allclose(library, own, rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
def test_tasks_and_records_do_not_depend_on_libraries(model: Model) -> None:
    with_libraries, without = (extract_tasks(model, target) for target in (HERE, HERE.without_libraries()))
    assert with_libraries == without


@pytest.mark.exhaustive
def test_a_target_that_cannot_call_libraries_is_warned_of(model: Model, tmp_path: Path) -> None:
    arm = Target.from_json({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    session = CompileSession(model, arm, tmp_path, CompileLimits(), libraries=("dnnl",))
    try:
        info = session.load()
    finally:
        session.close()
    assert not any(alternative.library for alternative in info.alternatives)
    assert any("-libs=dnnl" in warning for warning in info.warnings)
