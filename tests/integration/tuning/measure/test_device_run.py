"""A GPU device times baselines and runs artifacts for a job; a CPU stands in for the GPU.

PyTorch is a stand-in here, found before any that is installed: what is tested is the way to it and back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvml_answers import Driver, uuid

import tunefarm_tuning
from tunefarm_tuning import Artifact
from tunefarm_tuning.compiler import request as compile_request
from tunefarm_tuning.compiler.artifact_comparison import artifact_check, compare_on_device
from tunefarm_tuning.compiler.phases import load as load_phase
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvariantError
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.gpu.baseline import ONNXRUNTIME, TORCH_COMPILE, time_baselines
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.records.coverage import Coverage
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.testing.local_rpc import LocalRpc, local_rpc
from tunefarm_tuning.testing.records import TunedNet
from tunefarm_tuning.workload.model import Model

LIMITS = CompileLimits()

TORCH = """
import contextlib, sys
if "tunefarm_tuning.frontend.onnx.gpu_baseline_child" not in sys.modules:
    raise ImportError("TVM looks for PyTorch, too")
class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
class _Array:
    def __init__(self, array): self.array = array
    def cuda(self): return self
from_numpy = _Array
inference_mode = contextlib.nullcontext
def compile(module, mode): return module
"""
ONNX2TORCH = """
import os, time
class _Module:
    def __init__(self, graph): self.graph = graph
    def eval(self): return self
    def cuda(self): return self
    def __call__(self, *inputs):
        shapes = [[d.dim_value for d in one.type.tensor_type.shape.dim] for one in self.graph.input]
        assert [list(one.array.shape) for one in inputs] == shapes
        time.sleep(0.002)
def convert(model):
    assert os.environ["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    {trouble}
    return _Module(model.graph)
"""


@pytest.fixture
def onnx2torch(tmp_path: Path) -> Path:
    """The stand-in's file."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch.py").write_text(TORCH)
    (packages / "onnx2torch.py").write_text(ONNX2TORCH.format(trouble="pass"))
    return packages / "onnx2torch.py"


@pytest.fixture
def farm(tmp_path: Path, onnx2torch: Path) -> Iterator[LocalRpc]:
    """A device whose server is that of a GPU."""
    driver = Driver(tmp_path / "nvml.json")
    driver.has("H100")
    python_path = os.pathsep.join(filter(None, [str(onnx2torch.parent), os.environ.get("PYTHONPATH")]))
    server = [
        *("env", f"CUDA_VISIBLE_DEVICES={uuid(0)}", f"{ANSWERS}={driver.path}", f"PYTHONPATH={python_path}"),
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    ]
    with local_rpc(server_command=server) as farm:
        yield farm


def run_on(farm: LocalRpc, folder: Path) -> DeviceRun:
    limits = ChildLimits()
    return DeviceRun(
        farm.device, kind="cpu", threads=1, limits=limits, folder=folder, connect_timeout_sec=120.0
    )


@pytest.fixture
def runner(farm: LocalRpc, tmp_path: Path) -> Iterator[DeviceRun]:
    runner = run_on(farm, tmp_path)
    yield runner
    runner.close()


def test_our_server_runs_the_yardstick_loop(runner: DeviceRun) -> None:
    assert runner.call("yardstick_loop", {}, timeout_sec=60.0)["loop_sec"] > 0


def others(runner: DeviceRun, model: Model, folder: Path, budget_sec: float = 240.0) -> Any:
    save_arrays(folder / "inputs.npz", random_inputs(model.inputs, seed=0))
    return time_baselines(model, folder / "inputs.npz", "", budget_sec, Cancellation(), runner)


def test_others_are_timed_where_the_gpu_is(
    runner: DeviceRun, tiny_net: TunedNet, onnx2torch: Path, tmp_path: Path
) -> None:
    timings, missing = others(runner, tiny_net.model, tmp_path)
    assert timings[TORCH_COMPILE].median_sec >= 0.002
    assert len(timings[TORCH_COMPILE].samples_sec) == 9
    assert "no CUDA provider" in missing[ONNXRUNTIME]

    # Each failure gives a reason, and leaves the device as it was.
    for trouble, reason in (
        (
            "raise RuntimeError('CUDA error: an illegal memory access was encountered')",
            "illegal memory access",
        ),
        ("os.abort()", "SIGABRT"),
        ("time.sleep(3600)", "not done within"),
    ):
        onnx2torch.write_text(ONNX2TORCH.format(trouble=trouble))
        timings, missing = others(runner, tiny_net.model, tmp_path, 240.0 if "sleep" not in trouble else 20.0)
        assert not timings
        assert reason in missing[TORCH_COMPILE]
    assert runner.connect() == 1
    assert not list((tmp_path / "sessions").glob("*/*.npz")), "a session's files go with it"


def test_a_device_that_is_gone_is_a_reason_too(farm: LocalRpc, tiny_net: TunedNet, tmp_path: Path) -> None:
    runner = DeviceRun(farm.device, kind="cpu", threads=1, limits=ChildLimits(), connect_timeout_sec=10.0)
    try:
        runner.connect()
        farm.signal_server("SIGKILL")
        timings, missing = others(runner, tiny_net.model, tmp_path)
    finally:
        runner.close()
    assert not timings
    assert all(why.startswith("it does not run on the device") for why in missing.values())


@pytest.fixture
def sets(tiny_net: TunedNet, tmp_path: Path) -> list[InputSet]:
    reference = Reference(
        tiny_net.model, tmp_path, threads=1, memory_bytes=LIMITS.memory_bytes, timeout_sec=LIMITS.model_sec
    )
    try:
        return reference.make(0)
    finally:
        reference.close()


@pytest.mark.exhaustive
def test_an_artifact_is_run_where_the_gpu_is(
    runner: DeviceRun, compiled: tuple[Artifact, Coverage], sets: list[InputSet], tmp_path: Path
) -> None:
    path = compiled[0].path
    comparison = compare_on_device(path, sets, LIMITS, runner)
    assert comparison is not None
    assert comparison.ok
    assert len(comparison.outputs) == len(sets)

    wrong = [
        replace(input_set, expected=tmp_path / f"wrong-{number}.npz") for number, input_set in enumerate(sets)
    ]
    for input_set, right in zip(wrong, sets, strict=True):
        save_arrays(input_set.expected, [array + np.float32(1) for array in load_arrays(right.expected)])
    with pytest.raises(InvariantError, match="gives different results"):
        artifact_check(wrong, LIMITS, Cancellation(), runner)(path)

    damaged = tmp_path / "damaged.tunefarm"
    damaged.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError):
        artifact_check(sets, LIMITS, Cancellation(), runner)(damaged)


@pytest.mark.exhaustive
def test_a_device_that_offers_nothing_is_no_error(
    compiled: tuple[Artifact, Coverage], tiny_net: TunedNet, sets: list[InputSet], tmp_path: Path
) -> None:
    with local_rpc() as plain:
        runner = run_on(plain, tmp_path)
        try:
            artifact_check(sets, LIMITS, Cancellation(), runner)(compiled[0].path)
            timings, missing = others(runner, tiny_net.model, tmp_path)
            assert runner.call("yardstick_loop", {}, timeout_sec=60.0) == {"loop_sec": None}
        finally:
            runner.close()
    assert not timings
    assert all("does not time other networks" in why for why in missing.values())


def pose_as_gpu(monkeypatch: pytest.MonkeyPatch, device_run: Callable[..., DeviceRun]) -> None:
    """Let a compile take its target for a GPU's, and make its device's runs by a function."""
    for module in (compile_request, load_phase):
        monkeypatch.setattr(module, "device_kind", lambda _target: "cuda")
    monkeypatch.setattr(load_phase, "DeviceRun", device_run)


@pytest.mark.exhaustive
def test_a_compile_for_a_device_asks_it(
    farm: LocalRpc, tiny_net: TunedNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_cpu(device: Any, *, kind: str, **rest: Any) -> DeviceRun:
        assert kind == "cuda"
        return DeviceRun(device, kind="cpu", **rest)

    ran: list[Path] = []

    def compared(path: Path, *rest: Any) -> Any:
        ran.append(path)
        return compare_on_device(path, *rest)

    pose_as_gpu(monkeypatch, on_cpu)
    monkeypatch.setattr(
        sys.modules["tunefarm_tuning.compiler.artifact_comparison"], "compare_on_device", compared
    )
    artifact = tunefarm_tuning.compile(tiny_net.model, output=tmp_path / "a.tunefarm", device=farm.device)
    latency = artifact.report["latency"]
    assert latency["torch_compile"]["median_sec"] >= 0.002
    assert latency["torch_compile_missing"] is None
    assert "no CUDA provider" in latency["onnxruntime_missing"]
    assert latency["tuned"]["disturbance"]["others_cores"] >= 0, "our server tells what its machine does"
    assert latency["ratios"]["untuned"]["value"] == pytest.approx(latency["speedup_over_untuned"])
    assert len(ran) == 1
    assert artifact.path.is_file()


@pytest.mark.exhaustive
def test_a_compile_that_will_be_stopped_soon_times_nobody(
    farm: LocalRpc, tiny_net: TunedNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pose_as_gpu(monkeypatch, lambda device, **rest: DeviceRun(device, **{**rest, "kind": "cpu"}))
    artifact = tunefarm_tuning.compile(
        tiny_net.model,
        output=tmp_path / "a.tunefarm",
        device=farm.device,
        limits=replace(LIMITS, whole_sec=60.0),
    )
    for name in ("onnxruntime", "torch_compile"):
        assert artifact.report["latency"].get(name) is None
        assert "no time was left" in artifact.report["latency"][f"{name}_missing"]
