"""Every shipped runner keeps the runner contract: those of real kernels, and the one that replays records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, Runner, TimingOption
from tunefarm_tuning.measure.runner import RUNNERS, LocalRunner, RpcRunner
from tunefarm_tuning.measure.runner.replay import Recording, ReplayRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.runner_contract import REPEAT, RunnerContract
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space
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

    def test_after_an_illegal_access_the_next_has_a_fresh_context(self) -> None:
        """The text is CUDA's; that nothing works in its process afterwards is played by the kernels."""
        illegal, uses_gpu = self.bad("illegal"), self.bad("after-illegal")
        results = self.runner().run([uses_gpu, illegal, uses_gpu])
        outcomes = [None if result.failure is None else result.failure.outcome for result in results]
        assert outcomes == [None, Outcome.RUN_ERROR, None], results
        assert results[1].failure is not None
        assert "an illegal memory access was encountered" in results[1].failure.message
        results = self.runner().run_interleaved([illegal, uses_gpu], rounds=2)
        assert [result.failure is None for result in results] == [False, True], results


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


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(None, id="a session each"),
        pytest.param(3, id="sessions shared", marks=pytest.mark.exhaustive),
    ],
)
def rpc_runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}"),
        *("--work-dir", str(tmp_path_factory.mktemp("rpc-server"))),
    ]
    with (
        local_rpc(server_command=server) as farm,
        RpcRunner(farm.device, TIMING, connect_timeout_sec=60.0) as runner,
    ):
        runner.use_lease(request.param)
        yield runner


class TestRpcRunner(_RealKernels):
    @pytest.fixture(autouse=True)
    def _runner_of_module(self, rpc_runner: Runner) -> None:
        self._runner = rpc_runner

    def runner(self) -> Runner:
        return self._runner


class TestReplayRunner(RunnerContract):
    """The recorded results of runners of real kernels, good and bad, are replayed."""

    _BAD: ClassVar = {
        "crash": Outcome.RUN_CRASH,
        "exit": Outcome.RUN_CRASH,
        "hang": Outcome.RUN_TIMEOUT,
        "nothing": Outcome.RUN_ERROR,
    }

    @pytest.fixture(autouse=True)
    def _replayed(self, tmp_path: Path) -> Iterator[None]:
        self._task, space = synthetic_task(), tiny_space()
        self._configs = [space.config_at(number) for number in range(3 + len(self._BAD))]
        outcomes = [Outcome.OK] * 3 + list(self._BAD.values())
        records = [
            self._record(config, outcome, number)
            for number, (config, outcome) in enumerate(zip(self._configs, outcomes, strict=True))
        ]
        self._builder = ReplayBuilder({self._task.workload.key: space}, work_dir=tmp_path)
        with self._builder, ReplayRunner(Recording(records).measure) as runner:
            self._runner = runner
            yield

    def _record(self, config: Config, outcome: Outcome, number: int) -> TuningRecord:
        return TuningRecord(
            workload_key=self._task.workload.key,
            target_key=self._task.target.key,
            device_model="replay",
            toolchain="replay",
            space_key="",
            config=config,
            outcome=outcome,
            samples_sec=(1e-3 + number * 1e-4,) * REPEAT if outcome is Outcome.OK else (),
            build_sec=0.0,
            measured_at=0.0,
            message="" if outcome is Outcome.OK else "recorded",
            extra={"run_sec": 1e-3},
        )

    def _input(self, config: Config) -> MeasureInput:
        (built,) = self._builder.build([BuildInput(task=self._task, config=config)])
        assert built.artifact_path is not None
        return MeasureInput(task=self._task, artifact_path=built.artifact_path)

    def runner(self) -> Runner:
        return self._runner

    def good(self) -> list[MeasureInput]:
        return [self._input(config) for config in self._configs[:3]]

    def bad(self, kind: str) -> MeasureInput:
        return self._input(self._configs[3 + list(self._BAD).index(kind)])


def test_every_runner_has_a_contract_test() -> None:
    tested = {"local": TestLocalRunner, "rpc": TestRpcRunner, "replay": TestReplayRunner}
    assert tested.keys() == RUNNERS.keys()
