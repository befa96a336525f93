"""What a child that runs networks keeps from call to call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax, te

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.children import run
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.device.session import DeviceSession

SIZE = 8


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a network that doubles its input."""
    given = te.placeholder((SIZE,), "float32", name="given")
    kernel = te.create_prim_func([given, te.compute((SIZE,), lambda i: given[i] + given[i], name="doubled")])
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((SIZE,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            call = relax.call_tir(
                builder.add_func(kernel, "double"), [x], relax.TensorType((SIZE,), "float32")
            )
            output = builder.emit_output(builder.emit(call))
        builder.emit_func_output(output)
    build_model(builder.get(), parse_target("host"), tmp_path / "network.so")
    return tmp_path / "network.so"


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    run.connect({"address": None, "kind": "cpu", "threads": 1, "timeout_sec": 60.0})
    yield
    run.hang_up({})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The first numbers of the arrays that were sent to the device."""
    numbers: list[float] = []
    to_device = DeviceSession.to_device

    def noted(self: DeviceSession, arrays: Sequence[NDArray[Any]], kind: str) -> list[Any]:
        numbers.append(float(arrays[0].flat[0]))
        return to_device(self, arrays, kind)

    monkeypatch.setattr(DeviceSession, "to_device", noted)
    return numbers


def written(path: Path, value: float, at: int) -> Path:
    """Write an input, at a time in seconds."""
    save_arrays(path, [np.full(SIZE, value, np.float32)])
    os.utime(path, (at, at))
    return path


def test_samples_of_a_networks_time_send_its_inputs_once(
    library: Path, tmp_path: Path, sent: list[float]
) -> None:
    inputs = written(tmp_path / "inputs.npz", 1.0, at=1)
    params = {"path": str(library), "entry": "main", "inputs": str(inputs), "number": 1, "repeat": 1}
    run.load_model(params)
    for _ in range(3):
        assert run.time_model(params)["samples_sec"][0] > 0
    assert sent == [1.0]
    run.hang_up({})
    run.connect({"address": None, "kind": "cpu", "threads": 1, "timeout_sec": 60.0})
    run.time_model(params)
    assert sent == [1.0, 1.0], "a new session has none"


@pytest.mark.exhaustive
def test_other_inputs_are_sent(library: Path, tmp_path: Path, sent: list[float]) -> None:
    outputs = tmp_path / "outputs.npz"
    files = [
        written(tmp_path / "first.npz", 1.0, at=1),
        written(tmp_path / "second.npz", 2.0, at=1),
        tmp_path / "first.npz",
        lambda: written(tmp_path / "first.npz", 3.0, at=2),
    ]
    doubled = []
    for file in files:
        inputs = file() if callable(file) else file
        run.run_model({"path": str(library), "entry": "main", "inputs": str(inputs), "outputs": str(outputs)})
        doubled.append(float(load_arrays(outputs)[0][0]))
    assert doubled == [2.0, 4.0, 2.0, 6.0]
    assert sent == [1.0, 2.0, 1.0, 3.0]
