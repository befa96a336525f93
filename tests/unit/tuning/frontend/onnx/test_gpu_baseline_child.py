"""Baselines on a GPU are synchronised once per sample, like an artifact.

PyTorch is a stand-in, and ONNX Runtime's CPU provider says that it is CUDA's: what is tested is the order of the calls.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_models
import onnxruntime
import pytest

from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.frontend.onnx import gpu_baseline_child as child

WAITED, RAN = "waited", "ran"


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_run", None)


@pytest.fixture
def network(tmp_path: Path) -> dict[str, Any]:
    model = onnx_models.mlp()
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    inputs = {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
    }
    save_arrays(tmp_path / "inputs.npz", list(inputs.values()))
    return {"path": str(path), "binding": {}, "feeds": str(tmp_path / "inputs.npz")}


def test_torch_is_waited_for_once_a_sample(network: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Module:
        def eval(self) -> Module:
            return self

        def cuda(self) -> Module:
            return self

        def __call__(self, *_inputs: Any) -> None:
            calls.append(RAN)

    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: True, synchronize=lambda: calls.append(WAITED)),
        compile=lambda module, mode: module,
        from_numpy=lambda _array: SimpleNamespace(cuda=lambda: None),
        inference_mode=contextlib.nullcontext,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "onnx2torch", SimpleNamespace(convert=lambda _model: Module()))  # type: ignore[arg-type]
    child.open_({"kind": "torch_compile", **network})
    calls.clear()
    assert len(child.sample({"number": 4, "repeat": 2})) == 2
    assert calls == [RAN, WAITED, *2 * [*4 * [RAN], WAITED]]


def test_onnx_runtime_is_waited_for_once_a_sample(
    network: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Binding:
        def __init__(self, binding: Any) -> None:
            self.real = binding

        def bind_ortvalue_input(self, name: str, value: Any) -> None:
            self.real.bind_ortvalue_input(name, value)

        def bind_output(self, name: str, _device: str) -> None:
            self.real.bind_output(name)

        def synchronize_outputs(self) -> None:
            self.real.synchronize_outputs()

    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, source: Any, options: Any, providers: Any) -> None:
            super().__init__(source, options, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider"]

        def io_binding(self) -> Any:
            return Binding(super().io_binding())

        def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
            key = "disable_synchronize_execution_providers"
            waits = options is None or options.get_run_config_entry(key) != "1"
            calls.extend([RAN, WAITED] if waits else [RAN])
            super().run_with_iobinding(binding.real, options)

    on_cpu = onnxruntime.OrtValue.ortvalue_from_numpy
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime.OrtValue, "ortvalue_from_numpy", lambda array, *_device: on_cpu(array))
    child.open_({"kind": "onnxruntime", **network})
    calls.clear()
    assert len(child.sample({"number": 4, "repeat": 2})) == 2
    assert calls == [RAN, WAITED, *2 * [*4 * [RAN], WAITED]]
