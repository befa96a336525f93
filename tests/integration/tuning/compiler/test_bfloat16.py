"""An artifact of a network that is computed in bfloat16: its report, its checks, and the CPUs that refuse it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.artifact.container import ArtifactError
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.artifact.machine_check import check_machine_of, cpu_flags
from tunefarm_tuning.compiler.phases.pack import Artifact
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.workload.model import Model

ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
pytestmark = pytest.mark.skipif("avx512_bf16" not in cpu_flags(), reason="this CPU has no avx512_bf16")


def network() -> onnx.ModelProto:
    """A residual block, a depthwise convolution, a mean and a dense layer."""
    graph = GraphBuilder()
    x = graph.node("Relu", graph.conv(graph.input("x", [1, 8, 16, 16]), 8, 32))
    x = graph.node("Add", x, graph.node("Relu", graph.conv(x, 32, 32)))
    x = graph.node("Conv", x, graph.weight(32, 1, 3, 3), kernel_shape=[3, 3], group=32)
    rows = graph.node("Reshape", graph.node("GlobalAveragePool", x), graph.ints(1, 32))
    graph.output(graph.node("MatMul", rows, graph.weight(32, 10)))
    return graph.model()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("bfloat16") / "net.onnx"
    path.write_bytes(network().SerializeToString())
    return import_model(path)


@pytest.fixture(scope="module")
def artifact(model: Model) -> Artifact:
    return tunefarm_tuning.compile(
        model, output=model.path.parent / "net", precision="bfloat16", baseline=False, limits=ANY_SPEED
    )


def test_the_artifact_is_near_onnx_runtime(artifact: Artifact, model: Model) -> None:
    x = np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype(np.float32)
    (ours,) = load(artifact.path).run({"x": x}).values()
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": x})
    error = np.abs(ours - theirs).max() / np.sqrt(np.mean(np.square(theirs)))
    assert 1e-5 < error < 3e-2


def differences() -> onnx.ModelProto:
    """Two dense layers that are nearly equal, and their difference, in which the rounding of factors adds up."""
    graph = GraphBuilder()
    x, rng = graph.input("x", [16, 256]), np.random.default_rng(0)
    weights = rng.standard_normal((256, 256)).astype(np.float32)
    near = weights + np.float32(0.06) * rng.standard_normal(weights.shape).astype(np.float32)
    graph.output(
        graph.node(
            "Sub",
            graph.node("MatMul", x, graph.constant(near)),
            graph.node("MatMul", x, graph.constant(weights)),
        )
    )
    return graph.model()


def test_rounding_that_adds_up_everywhere_is_allowed_and_told(tmp_path: Path) -> None:
    path = tmp_path / "differences.onnx"
    path.write_bytes(differences().SerializeToString())
    artifact = tunefarm_tuning.compile(
        import_model(path), output=tmp_path / "net", precision="bfloat16", baseline=False, limits=ANY_SPEED
    )
    accuracy = artifact.report["precision"]["accuracy"]
    assert accuracy["as_model"]["mean_rel_error"] < 1e-4 < 2e-2 < accuracy["stored"]["mean_rel_error"]
    (warning,) = [text for text in artifact.report["warnings"] if "adds up" in text]
    assert f"{accuracy['stored']['mean_rel_error']:.2g}" in warning
    with pytest.raises(InvalidModelError, match="off by") as caught:
        tunefarm_tuning.compile(
            import_model(path),
            output=tmp_path / "accurate",
            precision="bfloat16",
            baseline=False,
            limits=ANY_SPEED,
            max_error=1e-2,
        )
    assert caught.value.code == "too-inaccurate"


def test_the_report_has_both_errors(artifact: Artifact) -> None:
    precision = artifact.report["precision"]
    assert precision["name"] == artifact.manifest["precision"] == artifact.manifest["tolerance"] == "bfloat16"
    assert precision["weights"]["stored"] == 3, "two convolutions and the dense layer"
    accuracy = precision["accuracy"]
    assert 0 < accuracy["as_model"]["mean_rel_error"] < 1e-5 < accuracy["stored"]["mean_rel_error"] < 2e-2


def test_verify_holds_it_to_its_precision(artifact: Artifact, model: Model) -> None:
    outputs = tunefarm_tuning.verify(artifact.path, model).outputs
    assert all(output.ok and output.rtol == 0.05 for output in outputs)


def test_a_cpu_without_the_instruction_refuses_the_artifact(artifact: Artifact) -> None:
    assert "avx512bf16" in artifact.manifest["cpu_features"]
    check_machine_of(artifact.manifest)
    with pytest.raises(ArtifactError, match="this CPU lacks avx512bf16") as caught:
        check_machine_of(artifact.manifest, cpu_flags() - {"avx512_bf16"})
    assert caught.value.code == "wrong-machine"


def test_other_targets_are_refused(model: Model, tmp_path: Path) -> None:
    target = "llvm -mcpu=znver4 -mattr=-avx512bf16"
    with pytest.raises(InvalidInputError, match="avx512_bf16") as caught:
        tunefarm_tuning.compile(model, target, output=tmp_path / "net", precision="bfloat16")
    assert caught.value.code == "unsupported-precision"
    with pytest.raises(InvalidInputError, match="avx512_bf16"):
        extract_tasks(model, "raspberry-pi/4b-aarch64", precision="bfloat16")
