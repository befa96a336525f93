"""A device times kernels in one call; what it answers is checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, TimingOption
from tunefarm_tuning.measure.runner.timing import interleaved_params, measure_params
from tunefarm_tuning.process.relay import client as relay_client
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.device.kernel_times import TIME_IN_TURN, TIME_KERNEL, time_in_turn, time_kernel
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session

TIMING = TimingOption(repeat=3, number=1, min_repeat_ms=1, timeout_sec=120.0)


class WatchedSession(DeviceSession):
    """Notes which functions of the device are asked for."""

    def __init__(self, session: DeviceSession) -> None:
        self.__dict__.update({**session.__dict__, "_offered": {}})
        self.asked: list[str] = []

    def function(self, name: str) -> Any:
        self.asked.append(name)
        return super().function(name)


class LyingSession(WatchedSession):
    """A device that says what it likes."""

    def __init__(self, session: DeviceSession, answer: object) -> None:
        super().__init__(session)
        self._answer = json.dumps(answer)

    def function(self, name: str) -> Any:
        return lambda _request: self._answer


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceSession]:
    folder = tmp_path_factory.mktemp("sessions")
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(folder)),
    ]
    with local_rpc(server_command=server) as farm:
        opened = open_session(farm.device.to_json(), timeout_sec=600.0, connect_timeout_sec=60.0)
        with closing(opened):
            yield opened
        assert relay_client._relay is not None
        relay_client._relay.close()
        relay_client._relay = None  # the next device is behind another tracker


@pytest.fixture(scope="module")
def kernel() -> Iterator[MeasureInput]:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1) as builder:
        (config,) = builder.config_space(task).sample(np.random.default_rng(0), 1)
        (built,) = builder.build([BuildInput(task=task, config=config)])
        assert built.artifact_path is not None, built.failure
        yield MeasureInput(task=task, artifact_path=built.artifact_path)


def test_a_kernel_costs_one_call_beside_its_upload(session: DeviceSession, kernel: MeasureInput) -> None:
    """Each call takes as long as the way there and back, which is what measuring on a device far away costs."""
    watched = WatchedSession(session)
    for _ in range(2):
        reply = time_kernel(watched, measure_params(kernel, TIMING, None))
        assert len(reply["samples_sec"]) == TIMING.repeat
        assert (reply["truncated"], reply["facts"]) == (False, {})
    assert watched.asked == [TIME_KERNEL]
    in_turn = time_in_turn(watched, interleaved_params([kernel] * 2, TIMING, 3))
    assert [len(samples) for samples in in_turn["samples_sec"]] == [3, 3]
    assert watched.asked == [TIME_KERNEL, TIME_IN_TURN]


def test_it_ends_early_if_it_is_hopeless(session: DeviceSession, kernel: MeasureInput) -> None:
    assert time_kernel(session, measure_params(kernel, TIMING, 1e-12))["truncated"] is True


def test_it_says_what_failed(session: DeviceSession, kernel: MeasureInput, tmp_path: Path) -> None:
    params = {**measure_params(kernel, TIMING, None), "path": str(bad_kernel("nothing", tmp_path))}
    with pytest.raises(RuntimeError) as here:
        time_kernel(local_session(), params)
    with pytest.raises(RuntimeError, match=type(here.value).__name__) as there:
        time_kernel(session, params)
    assert str(here.value).splitlines()[0] in str(there.value)


@pytest.mark.parametrize(
    "answer",
    [
        {"samples_sec": [1e-3, -1.0], "truncated": False},
        {"samples_sec": [float("nan")], "truncated": False},
        {"samples_sec": [], "truncated": False},
        {"samples_sec": [1e-3], "truncated": "false"},
        {"samples_sec": ["fast"], "truncated": False},
        {"samples_sec": [[1.0]], "truncated": False},
        {"error": "\x1b[2J" + 5000 * "long"},
        {"samples_sec": [1e-3] * 300_000, "truncated": False},
        {},
    ],
)
def test_answers_that_are_no_times_are_errors(
    session: DeviceSession, kernel: MeasureInput, answer: object
) -> None:
    lying = LyingSession(session, answer)
    with pytest.raises((RuntimeError, TypeError, KeyError)) as caught:
        time_kernel(lying, measure_params(kernel, TIMING, None))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_each_kernel_of_several_has_its_samples(session: DeviceSession, kernel: MeasureInput) -> None:
    for answer in ([[1e-3] * 3], [[1e-3] * 3, [1e-3] * 2]):
        lying = LyingSession(session, {"samples_sec": answer})
        with pytest.raises(RuntimeError, match="did not time each kernel in each round"):
            time_in_turn(lying, interleaved_params([kernel] * 2, TIMING, 3))
