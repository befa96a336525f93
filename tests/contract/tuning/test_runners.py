"""Every shipped runner of real kernels keeps the runner contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tunefarm_tuning.builder import LocalBuilder
from tunefarm_tuning.measure import BuildInput, MeasureInput, Runner, TimingOption
from tunefarm_tuning.runner import LocalRunner, RpcRunner
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.runner_contract import REPEAT, RunnerContract
from tunefarm_tuning.testing.workloads import sample_task

TIMING = TimingOption(repeat=REPEAT, number=1, min_repeat_ms=2, timeout_sec=10.0)


@pytest.fixture(scope="module")
def good_inputs() -> Iterator[list[MeasureInput]]:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1) as builder:
        configs = builder.config_space(task).sample(np.random.default_rng(0), 3)
        results = builder.build([BuildInput(task=task, config=config) for config in configs])
        yield [
            MeasureInput(task=task, artifact_path=result.artifact_path)
            for result in results
            if result.artifact_path is not None
        ]


class _RealKernels(RunnerContract):
    @pytest.fixture(autouse=True)
    def _inputs(self, good_inputs: list[MeasureInput], tmp_path: Path) -> None:
        self._good = good_inputs
        self._folder = tmp_path

    def good(self) -> list[MeasureInput]:
        return self._good

    def bad(self, kind: str) -> MeasureInput:
        return MeasureInput(task=self._good[0].task, artifact_path=bad_kernel(kind, self._folder))


@pytest.fixture(scope="module")
def local_runner() -> Iterator[Runner]:
    with LocalRunner(TIMING, threads=1) as runner:
        yield runner


class TestLocalRunner(_RealKernels):
    @pytest.fixture(autouse=True)
    def _runner_of_module(self, local_runner: Runner) -> None:
        self._runner = local_runner

    def runner(self) -> Runner:
        return self._runner


@pytest.fixture(scope="module")
def rpc_runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}"),
        *("--work-dir", str(tmp_path_factory.mktemp("rpc-server"))),
    ]
    with local_rpc(server_command=server) as farm, RpcRunner(farm.device, TIMING) as runner:
        yield runner


class TestRpcRunner(_RealKernels):
    @pytest.fixture(autouse=True)
    def _runner_of_module(self, rpc_runner: Runner) -> None:
        self._runner = rpc_runner

    def runner(self) -> Runner:
        return self._runner
