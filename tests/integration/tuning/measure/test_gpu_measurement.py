"""Measuring kernels on a GPU, with a CPU in its place: sessions, readings of its state, flushed caches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_as_gpu import CpuAsGpu
from nvml_answers import Driver, uuid

from tunefarm_tuning.core.errors import DeviceLostError, InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_tuning.measure.gpu.state import GpuState
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, TimingOption
from tunefarm_tuning.measure.runner import LocalRunner
from tunefarm_tuning.measure.runner.timing import interleaved_params, measure_params, result_of
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.process.relay import client as relay_client
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.children import calibrate as calibrate_child
from tunefarm_tuning.tvm.children import measure as measure_child
from tunefarm_tuning.tvm.device import kernel_times
from tunefarm_tuning.tvm.device.gpu import state_of
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session

TIMING = TimingOption(repeat=3, number=1, min_repeat_ms=1, timeout_sec=120.0)
SIZE = 512  # a matrix of it is large enough to be read cold


@pytest.fixture(autouse=True)
def _own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make arguments for each session: those of another session's device cannot be used."""
    monkeypatch.setattr(kernel_times, "_args", None)


@pytest.fixture(scope="module")
def kernel() -> Iterator[MeasureInput]:
    task = sample_task("matmul", n=SIZE)
    with LocalBuilder(workers=1) as builder:
        config = builder.config_space(task).sample(np.random.default_rng(0), 1)[0]
        (built,) = builder.build([BuildInput(task=task, config=config)])
        assert built.artifact_path is not None, built.failure
        yield MeasureInput(task=task, artifact_path=built.artifact_path)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    driver = Driver(tmp_path / "nvml.json")
    driver.has("H100")
    return driver


@pytest.fixture
def session(driver: Driver, tmp_path: Path) -> Iterator[DeviceSession]:
    server = [
        *("env", f"CUDA_VISIBLE_DEVICES={uuid(0)}", f"{ANSWERS}={driver.path}"),
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    ]
    with local_rpc(server_command=server) as farm:
        opened = open_session(farm.device.to_json(), timeout_sec=600.0, connect_timeout_sec=60.0)
        yield CpuAsGpu(opened)
        opened.close()
        assert relay_client._relay is not None
        relay_client._relay.close()
        relay_client._relay = None  # the next test's device is behind another tracker


def params(kernel: MeasureInput, *, constant: bool) -> dict[str, Any]:
    """Return the parameters of a measurement of the kernel on a GPU, one of its arguments being a weight or not."""
    request = measure_params(kernel, TIMING, None, 1980.0)
    request["args"][1]["constant"] = constant
    return {**request, "kind": "cuda"}


def test_samples_come_with_how_the_gpu_was(
    session: DeviceSession, driver: Driver, kernel: MeasureInput
) -> None:
    well = GpuState(
        clock_mhz=1980.0,
        memory_clock_mhz=2619.0,
        temperature_celsius=41.0,
        power_watts=70.5,
        memory_used_bytes=4 << 20,
    )
    read = state_of(session)
    assert read is not None
    assert read() == well

    warm = result_of(
        measure_child._measure(session, measure_child._samples, params(kernel, constant=False)), 1.0
    )
    assert len(warm.samples_sec) == TIMING.repeat, warm.failure
    assert warm.facts == {"gpu": {**well.to_json(), "before": well.to_json(), "l2": "warm"}}

    # The weight is read from memory, and what it takes from the cache is told beside it.
    reply = measure_child._measure(session, measure_child._samples, params(kernel, constant=True))
    cold = result_of(reply, 1.0)
    assert len(cold.samples_sec) == TIMING.repeat, cold.failure
    assert cold.facts["gpu"]["l2"] == "cold"
    assert 0 < cold.facts["gpu"]["warm_sec"] <= min(cold.samples_sec)

    # In turn, of a GPU that stays hot: it is taken again, and said.
    driver.answers_of(0, events=0x20)
    in_turn = {**interleaved_params([kernel] * 2, TIMING, 3, 1980.0), "kind": "cuda"}
    reply = measure_child._measure(session, measure_child._interleaved_samples, in_turn)
    assert [len(samples) for samples in reply["samples_sec"]] == [3, 3]
    assert reply["facts"]["gpu"]["slowed"] == "throttled: thermal"
    assert reply["facts"]["gpu"]["retaken"] == 2


def test_nothing_is_measured_on_a_gpu_that_is_anothers(
    session: DeviceSession, driver: Driver, kernel: MeasureInput
) -> None:
    me = os.getpid()
    driver.answers_of(0, processes=[[me, 1 << 30, "/usr/bin/train"]], process_loads=[[me, 90]])
    result = result_of(
        measure_child._measure(session, measure_child._samples, params(kernel, constant=False)), 1.0
    )
    assert result.failure is not None
    assert result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert result.failure.message == f"the GPU is used by train (pid {me})"
    assert result.run_sec == 0.0, (
        "else the candidate would be the one that was at work when the device was lost"
    )
    with pytest.raises(DeviceLostError, match=rf"the GPU is used by train \(pid {me}\)") as caught:
        calibrate_child._load(session, Path("nothing is loaded"), "cuda")
    assert caught.value.code == "device-busy"
    driver.answers_of(0, process_loads=[[me, 0]])  # it sleeps
    result = result_of(
        measure_child._measure(session, measure_child._samples, params(kernel, constant=False)), 1.0
    )
    assert result.failure is None


def test_a_device_that_tells_nothing_is_measured_all_the_same(kernel: MeasureInput) -> None:
    session = CpuAsGpu(local_session())
    assert tvm.get_global_func("tunefarm.gpu_state", allow_missing=True) is None
    assert state_of(session) is None
    result = result_of(
        measure_child._measure(session, measure_child._samples, params(kernel, constant=False)), 1.0
    )
    assert result.failure is None
    assert result.facts == {"gpu": {"l2": "warm"}}


@pytest.mark.exhaustive
def test_what_an_illegal_access_leaves_is_thrown_away(tmp_path: Path) -> None:
    illegal, uses_gpu = bad_kernel("illegal", tmp_path), bad_kernel("after-illegal", tmp_path)
    limits = ChildLimits(memory_bytes=None)

    def run(device: DeviceRun, path: Path) -> Any:
        args = {"path": str(path), "args": [], "seed": 0, "kind": "normal"}
        return device.call("run_untuned", args, timeout_sec=120.0)

    def try_both(device: DeviceRun) -> None:
        assert run(device, uses_gpu)["call_sec"] >= 0
        with pytest.raises(RunFailed, match="an illegal memory access was encountered"):
            run(device, illegal)
        assert run(device, uses_gpu)["call_sec"] >= 0

    device = DeviceRun(None, kind="cpu", threads=1, limits=limits, folder=tmp_path, connect_timeout_sec=120.0)
    try:
        try_both(device)
    finally:
        device.close()
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    ]
    with local_rpc(server_command=server) as farm:
        device = DeviceRun(
            farm.device, kind="cpu", threads=1, limits=limits, folder=tmp_path, connect_timeout_sec=120.0
        )
        try:
            try_both(device)
        finally:
            device.close()


def test_a_kernel_is_not_blamed_for_a_broken_gpu_or_for_another_one(tmp_path: Path) -> None:
    def run(kind: str) -> Any:
        args = {"path": str(bad_kernel(kind, tmp_path)), "args": [], "seed": 0, "kind": "normal"}
        return device.call("run_untuned", args, timeout_sec=120.0)

    limits = ChildLimits(memory_bytes=None)
    device = DeviceRun(None, kind="cpu", threads=1, limits=limits, folder=tmp_path, connect_timeout_sec=120.0)
    try:
        with pytest.raises(DeviceLostError, match="uncorrectable ECC error"):
            run("broken-gpu")
        with pytest.raises(InvalidInputError, match="for another GPU architecture") as caught:
            run("other-gpu")
        assert caught.value.code == "gpu-set-up"
        assert run("idle")["call_sec"] >= 0
    finally:
        device.close()


def test_no_candidate_is_blamed_for_how_the_machine_is_set_up(tmp_path: Path) -> None:
    task = sample_task("matmul", n=16)
    on_gpu = sample_task("matmul", n=16, target="cuda/sm_90")
    kernels = [
        (task, "other-gpu", "the code was built for another GPU architecture: check the target"),
        (task, "idle", ""),
    ]
    if not tvm.cuda(0).exist:
        kernels.append((on_gpu, "idle", "TVM finds no CUDA there"))
    with LocalRunner(TIMING, threads=1) as runner:
        for of, kind, says in kernels:
            (result,) = runner.run([MeasureInput(task=of, artifact_path=bad_kernel(kind, tmp_path))])
            if not says:
                assert result.failure is None
                continue
            assert result.failure is not None
            assert result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
            assert result.failure.message.startswith(says)
            assert result.run_sec == 0.0, "it was not at work when the device was lost"
