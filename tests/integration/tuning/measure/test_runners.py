"""Runners: a device that goes away, and the arguments of kernels."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from waiting import wait_until

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import (
    BuildInput,
    DeviceInfo,
    Failure,
    MeasureInput,
    MeasureResult,
    TimingOption,
)
from tunefarm_tuning.measure.runner import LocalRunner, RpcRunner
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import LocalRpc, local_rpc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.workload.task import TuningTask

TIMING = TimingOption(repeat=2, number=1, min_repeat_ms=2, timeout_sec=60.0)
CONNECT_SEC = 60.0


def outcomes(results: list[MeasureResult]) -> list[Outcome]:
    return [Outcome.OK if result.failure is None else result.failure.outcome for result in results]


def kernels(builder: LocalBuilder, task: TuningTask, n: int) -> list[MeasureInput]:
    configs = builder.config_space(task).sample(np.random.default_rng(0), n)
    results = builder.build([BuildInput(task=task, config=config) for config in configs])
    return [
        MeasureInput(task=task, artifact_path=result.artifact_path)
        for result in results
        if result.artifact_path
    ]


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(workers=1) as builder:
        yield builder


@pytest.fixture(scope="module")
def good(builder: LocalBuilder) -> list[MeasureInput]:
    return kernels(builder, sample_task("matmul", n=32), 2)


GONE_SEC = 2.0
"""How long to wait for a device of which the test knows that it is gone."""


class CountingRunner(RpcRunner):
    connects = 0

    def be_patient(self, connect_timeout_sec: float) -> None:
        self._connect_timeout_sec = connect_timeout_sec

    def _connect(self, timeout_sec: float) -> Failure | None:
        self.connects += 1
        return super()._connect(timeout_sec)


def test_a_lost_device_ends_the_batch_and_is_tried_again(good: list[MeasureInput]) -> None:
    with (
        local_rpc() as farm,
        CountingRunner(farm.device, TIMING, connect_timeout_sec=CONNECT_SEC) as runner,
    ):
        assert outcomes(runner.run(good)) == [Outcome.OK] * 2
        assert runner.check() is None
        farm.signal_server("SIGSTOP")
        before = runner.connects
        runner.be_patient(GONE_SEC)
        assert outcomes(runner.run(good * 4)) == [Outcome.INFRASTRUCTURE_ERROR] * 8
        assert runner.connects == before + 1  # not one time-out per candidate
        farm.signal_server("SIGCONT")
        runner.be_patient(CONNECT_SEC)
        assert (
            wait_until(lambda: outcomes_if_there(runner, good), "the device to be back") == [Outcome.OK] * 2
        )
        farm.signal_server("SIGKILL")
        runner.be_patient(GONE_SEC)
        assert outcomes(runner.run(good)) == [Outcome.INFRASTRUCTURE_ERROR] * 2
        assert runner.check() is not None


def hardened_server(folder: Path, tracker: str = "{tracker}", key: str = "{key}") -> list[str]:
    module = "tunefarm_workers.device.hardened_server"
    return [sys.executable, "-m", module, "--tracker", tracker, "--key", key, "--work-dir", str(folder)]


def test_kernels_share_a_session_under_a_lease(good: list[MeasureInput], tmp_path: Path) -> None:
    with (
        local_rpc(server_command=hardened_server(tmp_path / "sessions")) as farm,
        CountingRunner(farm.device, TIMING, connect_timeout_sec=CONNECT_SEC) as runner,
        RpcRunner(farm.device, TIMING, connect_timeout_sec=CONNECT_SEC) as other,
    ):
        assert outcomes(runner.run(good)) == [Outcome.OK] * 2
        assert runner.connects == 2  # TVM's own server would not notice that a client hung up
        runner.use_lease(1)
        assert outcomes(runner.run(good * 8)) == [Outcome.OK] * 16
        assert runner.connects == 4
        # One that fails has its own session then, and the device its doubts: whether it answers is asked.
        crash = replace(good[0], artifact_path=bad_kernel("crash", tmp_path))
        assert outcomes(runner.run([good[0], crash, good[1]])) == [Outcome.OK, Outcome.RUN_CRASH, Outcome.OK]
        assert runner.connects == 8
        # No kernel is blamed for what another one leaves behind.
        runner.release()
        poison = replace(good[0], artifact_path=bad_kernel("poison", tmp_path))
        assert outcomes(runner.run([poison, good[0], good[1]])) == [Outcome.OK] * 3
        assert runner.connects == 10
        # Another client of the same lease waits until it is let go of.
        runner.release()
        other.use_lease(1)
        assert outcomes(other.run(good)) == [Outcome.OK] * 2


def outcomes_if_there(runner: RpcRunner, inputs: list[MeasureInput]) -> list[Outcome]:
    """Return the outcomes; none where the device is away."""
    results = outcomes(runner.run(inputs))
    return [] if Outcome.INFRASTRUCTURE_ERROR in results else results


@pytest.mark.exhaustive
def test_a_crash_that_takes_the_server_along_is_no_candidates_fault(
    good: list[MeasureInput], tmp_path: Path
) -> None:
    crash = MeasureInput(task=good[0].task, artifact_path=bad_kernel("crash", tmp_path))
    # TVM's own server never comes back from this.
    with local_rpc() as farm, CountingRunner(farm.device, TIMING, connect_timeout_sec=CONNECT_SEC) as runner:
        assert outcomes(runner.run(good[:1])) == [Outcome.OK]
        runner.be_patient(10.0)  # the candidate's session has to open, and then there is none
        results = runner.run([crash, good[1]])
    assert outcomes(results) == [Outcome.INFRASTRUCTURE_ERROR] * 2


@pytest.fixture(scope="module")
def farm() -> Iterator[LocalRpc]:
    """TVM's own server: for tests that do not break it."""
    with local_rpc() as farm:
        yield farm


@pytest.mark.parametrize("tracker", ["none", "good"])
def test_no_tracker_and_no_such_device(good: list[MeasureInput], farm: LocalRpc, tracker: str) -> None:
    device = RemoteDevice(
        tracker_host="127.0.0.1",
        tracker_port=farm.device.tracker_port if tracker == "good" else 1,
        key="nobody",
        info=DeviceInfo(model="none", num_cores=1),
    )
    with RpcRunner(device, TIMING, connect_timeout_sec=1.0) as runner:
        results = runner.run(good)
    assert outcomes(results) == [Outcome.INFRASTRUCTURE_ERROR] * 2
    assert results[0].failure is not None
    assert "nobody" in results[0].failure.message


def is_loaded(name: str) -> bool:
    """Whether a process, whosever it is, has loaded a library of that name."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended
            if name in maps.read_text():
                return True
    return False


@pytest.mark.exhaustive
def test_a_server_that_is_started_anew_is_no_candidates_fault(
    good: list[MeasureInput], tmp_path: Path
) -> None:
    path = bad_kernel("hang", tmp_path).rename(tmp_path / f"hang-{uuid4().hex}.so")
    hang = replace(good[0], artifact_path=path)
    results: list[MeasureResult] = []
    with (
        local_rpc(server_command=hardened_server(tmp_path / "first")) as farm,
        RpcRunner(farm.device, replace(TIMING, timeout_sec=300.0), connect_timeout_sec=120.0) as runner,
    ):
        runner.use_lease(1)
        thread = threading.Thread(target=lambda: results.extend(runner.run([hang, good[0]])))
        thread.start()
        wait_until(lambda: is_loaded(path.name), "the kernel to be loaded")
        farm.signal_server("SIGKILL")  # as the agent does with one that does not answer
        tracker = f"127.0.0.1:{farm.device.tracker_port}"
        command = hardened_server(tmp_path / "second", tracker, farm.device.key)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as second:
            try:
                thread.join(300)
                assert outcomes(results) == [Outcome.INFRASTRUCTURE_ERROR] * 2
                assert outcomes(runner.run(good)) == [Outcome.OK] * 2
            finally:
                second.kill()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("where", ["local", "rpc"])
def test_closing_ends_a_measurement_in_another_thread(
    good: list[MeasureInput], farm: LocalRpc, tmp_path: Path, where: str
) -> None:
    path = bad_kernel("hang", tmp_path).rename(tmp_path / f"hang-{uuid4().hex}.so")
    hang = MeasureInput(task=good[0].task, artifact_path=path)
    timing = TimingOption(timeout_sec=300.0)
    runner = LocalRunner(timing, threads=1) if where == "local" else RpcRunner(farm.device, timing)
    results: list[MeasureResult] = []
    thread = threading.Thread(target=lambda: results.extend(runner.run([hang, good[0]])))
    thread.start()
    wait_until(lambda: is_loaded(path.name), "the kernel to be loaded")
    runner.close()
    thread.join(60)
    assert not thread.is_alive()
    assert outcomes(results) == [Outcome.INFRASTRUCTURE_ERROR] * 2


@pytest.mark.exhaustive
def test_indices_stay_in_range_and_other_dtypes_are_measured(builder: LocalBuilder) -> None:
    inputs = kernels(builder, sample_task("gather", n=16), 1) * 2
    for dtype in ("float16", "float64", "int8", "int32"):
        inputs += kernels(builder, sample_task("matmul", n=16, dtype=dtype), 1)
    with LocalRunner(TIMING, threads=1) as runner:
        assert outcomes(runner.run(inputs)) == [Outcome.OK] * 6


def test_the_local_device_says_what_it_is() -> None:
    with LocalRunner(threads=3) as runner:
        assert runner.device.num_cores == 3
        assert runner.device.model


def test_a_remote_device_survives_its_json() -> None:
    device = RemoteDevice(
        tracker_host="h", tracker_port=1, key="k", info=DeviceInfo(model="m", num_cores=2), kind="cuda"
    )
    assert RemoteDevice.from_json(device.to_json()) == device
