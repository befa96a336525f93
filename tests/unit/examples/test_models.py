"""The example networks are valid, reproducible, and not degenerate."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when an example is run as a script: they import each other."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)


def test_resnet18_is_resnet18() -> None:
    model = load("resnet18").build_resnet18()
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 20,
        "BatchNormalization": 20,
        "Relu": 17,
        "Add": 8,
        "MaxPool": 1,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    parameters = sum(
        int(np.prod(w.dims)) for w in model.graph.initializer if not w.name.endswith((".mean", ".var"))
    )
    assert parameters == 11_689_512
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    y = run(model, x)
    assert y.shape == (1, 1000)
    assert np.isfinite(y).all()
    assert 0.2 < y.std() < 5.0
    other = run(model, np.random.default_rng(2).normal(size=x.shape).astype(np.float32))
    assert np.abs(other - y).max() > 0.05


def test_mobilenet_v2_is_mobilenet_v2() -> None:
    model = load("mobilenet_v2").build_mobilenet_v2()
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 52,
        "BatchNormalization": 52,
        "Clip": 35,
        "Add": 10,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    parameters = sum(
        int(np.prod(w.dims))
        for w in model.graph.initializer
        if not w.name.endswith((".mean", ".var")) and w.name not in ("zero", "six")
    )
    assert parameters == 3_504_872
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    y = run(model, x)
    assert y.shape == (1, 1000)
    assert np.isfinite(y).all()
    assert 0.1 < y.std() < 5.0
    other = run(model, np.random.default_rng(2).normal(size=x.shape).astype(np.float32))
    assert np.abs(other - y).max() > 0.05


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_seed_decides_the_weights(name: str) -> None:
    build = getattr(load(name), f"build_{name}")
    small = {"size": 32, "classes": 10}
    first = build(seed=3, **small).SerializeToString()
    assert build(seed=3, **small).SerializeToString() == first
    assert build(seed=4, **small).SerializeToString() != first


@pytest.mark.parametrize(("kind", "shape"), [("tiny_convnet", (1, 3, 32, 32)), ("tiny_mlp", (1, 64))])
def test_tiny_networks_run(kind: str, shape: tuple[int, ...]) -> None:
    build = getattr(load("tiny_convnet"), f"build_{kind}")
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    y = run(build(), x)
    assert y.shape == (1, 10)
    assert np.isfinite(y).all()
    assert y.std() > 0.05


def test_dynamic_batch_has_a_name() -> None:
    model = load("tiny_convnet").build_tiny_convnet(batch="batch")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_scripts_write_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["tiny_convnet.py", str(tmp_path / "t.onnx"), "--kind", "mlp", "--dynamic-batch"]
    )
    load("tiny_convnet").main()
    assert "tiny_mlp" in capsys.readouterr().out
    assert onnx.load(tmp_path / "t.onnx").graph.name == "tiny_mlp"
    monkeypatch.setattr(
        sys, "argv", ["resnet18.py", str(tmp_path / "r.onnx"), "--size", "32", "--classes", "10"]
    )
    load("resnet18").main()
    assert onnx.load(tmp_path / "r.onnx").graph.name == "resnet18"
    monkeypatch.setattr(
        sys, "argv", ["mobilenet_v2.py", str(tmp_path / "m.onnx"), "--size", "32", "--classes", "10"]
    )
    load("mobilenet_v2").main()
    assert onnx.load(tmp_path / "m.onnx").graph.name == "mobilenet_v2"
