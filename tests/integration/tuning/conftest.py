"""A tiny network with records, for tests that compile it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import onnx
import pytest
from repository import ROOT

import tunefarm_tuning
from tunefarm_tuning import Artifact, Coverage, apply_history_best, import_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.testing.records import TunedNet, applicable_records

EXAMPLE = ROOT / "examples" / "tiny_convnet.py"


def _build(seed: int) -> onnx.ModelProto:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: onnx.ModelProto = module.build_tiny_mlp(seed=seed)
    return model


@pytest.fixture(scope="session")
def tiny_net(tmp_path_factory: pytest.TempPathFactory) -> TunedNet:
    folder = tmp_path_factory.mktemp("tiny-net")
    paths = {name: folder / f"{name}.onnx" for name in ("net", "weights", "function")}
    paths["net"].write_bytes(_build(seed=0).SerializeToString())
    paths["weights"].write_bytes(_build(seed=1).SerializeToString())
    changed = _build(seed=0)
    for node in changed.graph.node:
        node.op_type = {"Relu": "Sigmoid"}.get(node.op_type, node.op_type)
    paths["function"].write_bytes(changed.SerializeToString())
    model = import_model(paths["net"])
    return TunedNet(
        model=model,
        other_weights=replace(model, path=paths["weights"]),
        other_function=replace(model, path=paths["function"]),
        records=applicable_records(model),
    )


@pytest.fixture(scope="session")
def compiled(tiny_net: TunedNet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Coverage]:
    """The tiny network, compiled with a tuned kernel for each task."""
    path = tmp_path_factory.mktemp("artifacts") / "tiny"
    # The speed of a busy machine must not decide a test.
    limits = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
    with apply_history_best(tiny_net.records) as history:
        artifact = tunefarm_tuning.compile(tiny_net.model, "host", output=path, limits=limits)
    return artifact, history.coverage
