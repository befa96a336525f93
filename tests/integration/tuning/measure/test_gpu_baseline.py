"""Baselines on a machine without a GPU: each gives a reason, and no compile fails."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_models
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning import import_model
from tunefarm_tuning.compiler.report import why_no_baseline
from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.frontend.onnx import gpu_baseline_child
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.measure.gpu.baseline import (
    BUDGET_SEC,
    ONNXRUNTIME,
    TORCH_COMPILE,
    budget_sec,
    time_baselines,
)
from tunefarm_tuning.reference.random_inputs import random_inputs

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="there may be a GPU to use"
)
def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    model = import_model(_mlp(tmp_path))
    save_arrays(tmp_path / "inputs.npz", random_inputs(model.inputs, seed=0))
    timings, missing = time_baselines(model, tmp_path / "inputs.npz", "", 60.0, Cancellation())
    assert ONNXRUNTIME not in timings
    assert "no CUDA provider" in missing[ONNXRUNTIME]
    assert (TORCH_COMPILE in timings) != bool(missing.get(TORCH_COMPILE))


def test_where_none_is_wanted_none_is_started(tmp_path: Path) -> None:
    why = why_no_baseline(wanted=False, here=True)
    model = import_model(_mlp(tmp_path))
    assert time_baselines(model, tmp_path / "none", why, 60.0, Cancellation()) == (
        {},
        {ONNXRUNTIME: why, TORCH_COMPILE: why},
    )
    assert why == "not asked for"


@pytest.mark.exhaustive
def test_what_they_may_take_leaves_time_for_what_follows(tmp_path: Path) -> None:
    assert budget_sec(None, 4000.0) == BUDGET_SEC
    assert budget_sec(1800.0, 100.0) == BUDGET_SEC
    assert 0.0 < budget_sec(1800.0, 1500.0) < 300.0 / 2
    for elapsed_sec in (1750.0, 1900.0):
        assert budget_sec(1800.0, elapsed_sec) == 0.0
    timings, missing = time_baselines(
        import_model(_mlp(tmp_path)), tmp_path / "none", "", 0.0, Cancellation()
    )
    assert not timings
    assert all("no time was left" in why for why in missing.values())


def _mlp(folder: Path) -> Path:
    path = folder / "net"
    path.write_bytes(onnx_models.mlp().SerializeToString())
    return path


def test_a_network_in_bfloat16_is_timed_without_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphBuilder()
    short = g.node("Cast", g.input("x", [4]), to=TensorProto.BFLOAT16)
    g.output(g.node("Cast", short, to=TensorProto.FLOAT), [4])
    opened: list[bytes] = []

    class Session(onnxruntime.InferenceSession):  # type: ignore[name-defined,misc]
        def __init__(self, source: bytes, *_: object, **__: object) -> None:
            opened.append(source)
            super().__init__(source, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    gpu_baseline_child._onnxruntime(g.model(22), {})
    assert not uses_bfloat16(onnx.load_model_from_string(opened[0]).graph)
