"""The example networks are valid, reproducible, and not degenerate."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from repository import EXAMPLES


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


RESNET18 = {
    "Conv": 20,
    "BatchNormalization": 20,
    "Relu": 17,
    "Add": 8,
    "MaxPool": 1,
    "GlobalAveragePool": 1,
    "Flatten": 1,
    "Gemm": 1,
}
MOBILENET_V2 = {
    "Conv": 52,
    "BatchNormalization": 52,
    "Clip": 35,
    "Add": 10,
    "GlobalAveragePool": 1,
    "Flatten": 1,
    "Gemm": 1,
}
NO_PARAMETERS = {"zero", "six"}  # limits of the clipping


@pytest.mark.parametrize(
    ("name", "operators", "num_parameters", "least_spread"),
    [("resnet18", RESNET18, 11_689_512, 0.2), ("mobilenet_v2", MOBILENET_V2, 3_504_872, 0.1)],
)
def test_a_network_is_what_its_name_says(
    name: str, operators: dict[str, int], num_parameters: int, least_spread: float
) -> None:
    model = getattr(load(name), f"build_{name}")()
    onnx.checker.check_model(model, full_check=True)
    assert Counter(node.op_type for node in model.graph.node) == operators
    assert num_parameters == sum(
        int(np.prod(w.dims))
        for w in model.graph.initializer
        if not w.name.endswith((".mean", ".var")) and w.name not in NO_PARAMETERS
    )
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    y = run(model, x)
    assert y.shape == (1, 1000)
    assert np.isfinite(y).all()
    assert least_spread < y.std() < 5.0
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


@pytest.mark.parametrize(
    ("script", "options", "graph", "message"),
    [
        ("tiny_convnet", ["--kind", "mlp", "--dynamic-batch"], "tiny_mlp", "tiny_mlp"),
        ("resnet18", ["--size", "32", "--classes", "10"], "resnet18", "ResNet-18"),
        ("mobilenet_v2", ["--size", "32", "--classes", "10"], "mobilenet_v2", "MobileNetV2"),
    ],
)
def test_scripts_write_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    options: list[str],
    graph: str,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{script}.py", str(tmp_path / "net.onnx"), *options])
    load(script).main()
    assert message in capsys.readouterr().out
    assert onnx.load(tmp_path / "net.onnx").graph.name == graph
