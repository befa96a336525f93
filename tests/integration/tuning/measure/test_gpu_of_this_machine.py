"""`LocalRunner` reads the state of a GPU without an agent. A CPU and a file of answers stand in for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvml_answers import RECORDED, Driver, uuid

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, TimingOption
from tunefarm_tuning.measure.runner import LocalRunner, RpcRunner, local
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.workloads import sample_task

TIMING = TimingOption(repeat=3, number=1, min_repeat_ms=1, timeout_sec=120.0)


@pytest.fixture(scope="module")
def kernel() -> Iterator[MeasureInput]:
    """A CPU's kernel that is said to be a GPU's."""
    task = sample_task("matmul", n=64)
    with LocalBuilder(workers=1) as builder:
        config = builder.config_space(task).sample(np.random.default_rng(0), 1)[0]
        (built,) = builder.build([BuildInput(task=task, config=config)])
        assert built.artifact_path is not None, built.failure
        on_gpu = sample_task("matmul", n=64, target="cuda/sm_90")
        yield MeasureInput(task=on_gpu, artifact_path=built.artifact_path)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(tmp_path / "nvml.json")
    driver.has("H100")
    monkeypatch.setenv(ANSWERS, str(driver.path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid(0))
    return driver


@pytest.fixture
def runner(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalRunner]:
    del driver  # its environment is the child's
    folders = [str(RECORDED.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    monkeypatch.setattr(local, "_MODULE", "cpu_as_gpu_child")
    with LocalRunner(TIMING, threads=1) as runner:
        yield runner


def test_it_is_asked_how_it_is(runner: LocalRunner, driver: Driver, kernel: MeasureInput) -> None:
    (well,) = runner.run([kernel])
    assert well.failure is None
    assert well.facts["gpu"]["clock_mhz"] == 1980.0
    assert well.facts["gpu"]["temperature_celsius"] == 41.0
    assert "retaken" not in well.facts["gpu"]

    driver.answers_of(0, events=0x20)
    (hot,) = runner.run([kernel])
    assert (hot.facts["gpu"]["retaken"], hot.facts["gpu"]["slowed"]) == (2, "throttled: thermal")
    in_turn = runner.run_interleaved([kernel, kernel], rounds=2)
    assert in_turn[0].facts["gpu"]["slowed"] == "throttled: thermal"

    me = os.getpid()
    driver.answers_of(0, events=0, processes=[[me, 1 << 30, "/usr/bin/train"]], process_loads=[[me, 90]])
    (busy,) = runner.run([kernel])
    assert busy.failure is not None
    assert busy.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert busy.failure.message == f"the GPU is used by train (pid {me})"
    assert busy.run_sec == 0.0


def test_a_driver_that_does_not_answer_costs_no_candidate(
    runner: LocalRunner, driver: Driver, kernel: MeasureInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.path.unlink()
    os.mkfifo(driver.path)  # who reads it waits
    monkeypatch.setattr(local, "_DRIVER_SEC", 1.0)
    (result,) = runner.run([kernel])
    assert result.failure is not None
    assert result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "driver has not answered" in result.failure.message
    assert result.run_sec == 0.0


def test_nor_does_that_of_a_device(driver: Driver, kernel: MeasureInput, tmp_path: Path) -> None:
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    ]
    with local_rpc(server_command=server) as farm:
        driver.path.unlink()
        os.mkfifo(driver.path)
        device = replace(farm.device, kind="cuda")
        with RpcRunner(device, TIMING, connect_timeout_sec=5.0) as runner:
            (result,) = runner.run([kernel])
    assert result.failure is not None
    assert result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "opened no session" in result.failure.message
    assert result.run_sec == 0.0


@pytest.mark.exhaustive
def test_which_one_cuda_counts_first(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    stub = str(RECORDED / "cuda_stub.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), stub], check=True)

    def first(**environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from tunefarm_tuning.tvm.device.gpu import *; print(first_gpu())"],
            env={**_without_gpus(), "LD_LIBRARY_PATH": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.strip()

    assert first() == "GPU-00000000-1234-5678-9abc-def012345678"
    assert first(CUDA_VISIBLE_DEVICES=uuid(3)) == uuid(3)
    assert first(CUDA_VISIBLE_DEVICES="0") == "GPU-00000000-1234-5678-9abc-def012345678"


def _without_gpus() -> dict[str, Any]:
    return {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
