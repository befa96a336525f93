"""`DynamicQuantizeLSTM` multiplies bytes on CPUs with the instruction, with ONNX Runtime's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_reference import library_outputs, reference_outputs
from quantised_networks import lstm

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.kernels.layers.recurrence import Activation, Recurrence, from_json, to_json
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

AVX512 = parse_target("llvm -mcpu=cascadelake")
AVX2 = parse_target("llvm -mcpu=x86-64-v3")
HAS_VNNI = "avx512_vnni" in cpu_flags()


def network(folder: Path, *, hidden: int, **how: Any) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(lstm(hidden, **how).SerializeToString())
    return path


def recurrent_names(path: Path, target: Any) -> list[str]:
    loaded = load_relax(path, Binding(), target)
    return [kernel.name for kernel in primfunc_workloads(loaded.module) if "lstm" in kernel.name]


@pytest.mark.skipif(not HAS_VNNI, reason="this CPU has no avx512_vnni")
@pytest.mark.parametrize(
    "layer",
    [
        {"hidden": 32},
        {"hidden": 37, "batch": 3},  # columns and products that fill no tile and no four
        {"hidden": 130, "batch": 5, "direction": "bidirectional"},
        {"hidden": 16, "direction": "reverse"},
    ],
)
def test_agrees_with_onnx_runtime(layer: dict[str, Any], tmp_path: Path) -> None:
    path = network(tmp_path, **layer)
    loaded = load_relax(path, Binding(), AVX512)
    assert recurrent_names(path, AVX512) == ["byte_lstm"]
    build_model(loaded.module, AVX512, tmp_path / "lib.so")
    values = random_inputs(loaded.inputs, seed=1)
    ours = library_outputs(tmp_path / "lib.so", "main", values)
    for mine, theirs in zip(ours, reference_outputs(path, loaded, values), strict=True):
        comparison = compare_arrays("y", mine, theirs)
        assert comparison.ok, comparison.message


def test_other_cpus_multiply_floats(tmp_path: Path) -> None:
    assert recurrent_names(network(tmp_path, hidden=32), AVX2) == ["lstm"]


def test_weights_beyond_int8_stay_floats(tmp_path: Path) -> None:
    """Less a zero point of 20, unsigned bytes reach from -20 to 235."""
    path = network(tmp_path, hidden=64, dtype=np.uint8, zero=20)
    assert recurrent_names(path, AVX512) == ["lstm"]


def test_recurrences_come_back_from_json() -> None:
    cell = Recurrence(
        kind="LSTM",
        steps=4,
        batch=2,
        hidden=8,
        dtype="float32",
        activations=[Activation("HardSigmoid", (0.2, 0.5)), Activation("Tanh"), Activation("Tanh")],
        clip=1.5,
        rounded=True,
    )
    assert from_json(to_json([cell])) == [cell]
