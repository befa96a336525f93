"""Run the parts of the GPU benchmark; each part becomes one line of the results."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu import plan
from benchmarks.gpu.farm_job import GpuFarm
from benchmarks.gpu.networks import network_file, weights_file
from benchmarks.gpu.plan import Step
from benchmarks.search.machine import ROOT
from numpy.typing import NDArray

from tunefarm_tuning import import_model
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target

_RUN_SEC = 300.0
_TORCH_SEC = 560.0  # max-autotune compiles for minutes
SAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder, the target and the PyTorch that parts run with.

    Attributes:
        folder: For networks, inputs, outputs, artifacts and the farm.
        target: The GPU's name as a target.
        torch_python: The interpreter that has PyTorch.
        device: PyTorch's name of the device.
        tf32: Whether PyTorch may use it.
        inductor: The mode of `torch.compile`.
    """

    folder: Path
    target: str
    torch_python: str
    device: str = "cuda"
    tf32: bool = False
    inductor: str = "max-autotune"


def run_part(step: Step, setup: Place, farm: GpuFarm, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Run a part; return the results for its line."""
    network = network_file(step.network, step.dtype, setup.folder / "networks")
    if step.part == plan.TUNE:
        name = f"{step.network}-{step.dtype}"
        number = len(plan.of(lines, plan.TUNE, step.network, step.dtype))
        return farm.tune(network, setup.folder / "artifacts" / f"{name}-{number}", seconds=step.tune_sec)
    inputs, expected = inputs_and_expected(network)
    if step.part in (plan.TORCH, plan.COMPILED):
        return _torch(step, setup, network, inputs, expected)
    if step.part == plan.UNTUNED:
        return _untuned(setup, network, inputs, expected)
    searches = plan.of(lines, plan.TUNE, step.network, step.dtype)
    measured = in_a_child("artifact", {"path": searches[-1]["artifact"]}, inputs, expected)
    return {**measured, "searches": len(searches), "artifact": searches[-1]["artifact"]}


def _untuned(setup: Place, network: Path, inputs: Path, expected: Path) -> dict[str, Any]:
    target = parse_target(setup.target)
    library = network.with_name(f"{network.stem}-untuned.so")
    library.unlink(missing_ok=True)
    with closing(CompileSession(import_model(network), target, network.parent, CompileLimits())) as session:
        session.build_model(library, {})
    kind = "cuda" if target.kind == "cuda" else "cpu"
    return in_a_child("library", {"path": str(library), "kind": kind}, inputs, expected)


def child() -> ChildProcess:
    """Return a process of `tvm_child`."""
    return child_of("benchmarks.gpu.tvm_child")


def child_of(module: str) -> ChildProcess:
    """Return a process of one of the benchmark's modules."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # CUDA's driver reserves far more address space than it uses.
    limits = ChildLimits(memory_bytes=None)
    return ChildProcess(module, limits=limits, access=None, env={"PYTHONPATH": path})


def in_a_child(method: str, params: Mapping[str, Any], inputs: Path, expected: Path) -> dict[str, Any]:
    """Run an artifact or a library (`tvm_child`'s methods): samples, and how its outputs compare."""
    outputs = expected.with_name(f"{expected.stem}-{method}.npz")
    with closing(child()) as running:
        request = {**params, "inputs": str(inputs), "outputs": str(outputs), "samples": SAMPLES}
        reply: dict[str, Any] = running.call(method, request, timeout_sec=_RUN_SEC)
    return {**reply, **compared(load_arrays(outputs)[0], expected)}


def _torch(step: Step, setup: Place, network: Path, inputs: Path, expected: Path) -> dict[str, Any]:
    stem = f"{network.stem}-{step.part}"
    files = {
        name: network.with_name(f"{stem}-{name}") for name in ("request.json", "reply.json", "outputs.npz")
    }
    plain = network.with_name(f"{network.stem}-torch-inputs.npz")
    np.savez(plain, x=load_arrays(inputs)[0])
    request = {
        "network": step.network,
        "dtype": step.dtype,
        "device": setup.device,
        "mode": "compile" if step.part == plan.COMPILED else "eager",
        "inductor": setup.inductor,
        "tf32": setup.tf32,
        "samples": SAMPLES,
        "weights": str(weights_file(network)),
        "inputs": str(plain),
        "outputs": str(files["outputs.npz"]),
        "reply": str(files["reply.json"]),
    }
    files["reply.json"].unlink(missing_ok=True)
    files["request.json"].write_text(json.dumps(request), encoding="utf-8")
    done = subprocess.run(
        [setup.torch_python, "-m", "benchmarks.gpu.torch_child", str(files["request.json"])],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TORCH_SEC,
        check=False,
    )
    if done.returncode != 0 or not files["reply.json"].exists():
        raise RuntimeError(f"PyTorch: {' '.join(done.stderr.split())[-400:]}")
    reply: dict[str, Any] = json.loads(files["reply.json"].read_text(encoding="utf-8"))
    with np.load(files["outputs.npz"], allow_pickle=False) as outputs:
        return {**reply, **compared(outputs["y"], expected)}


def inputs_and_expected(network: Path) -> tuple[Path, Path]:
    """Return the files of seeded inputs, and of the outputs of ONNX Runtime's CPU provider without optimisations."""
    inputs = network.with_name(f"{network.stem}-inputs.npz")
    expected = network.with_name(f"{network.stem}-expected.npz")
    if not expected.exists():
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
        arrays = random_inputs(import_model(network).inputs, seed=0)
        names = [value.name for value in session.get_inputs()]
        save_arrays(inputs, arrays)
        save_arrays(expected, session.run(None, dict(zip(names, arrays, strict=True))))
    return inputs, expected


def compared(output: NDArray[Any], expected: Path) -> dict[str, Any]:
    """Compare an output with the expected one."""
    wanted = load_arrays(expected)[0]
    compared = compare_arrays("y", output.astype(wanted.dtype), wanted)
    return {"ok": compared.ok, "max_rel_error": compared.max_rel_error, "wrong": compared.message}
