"""Steps that fail: which are retried, and what their users read."""

from __future__ import annotations

import errno
from contextlib import contextmanager

import pytest

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.measure.builder.worker import FULL_DISK


def test_a_transient_error_is_tried_again_and_then_fails_the_job(farm) -> None:
    class Broken(ReplayEngine):
        def compile(self, *args, **kwargs):
            raise TransientError("the store is away", code="store-unavailable")

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_engine(Broken()).run()
    assert farm.job(job.id).state is JobState.COMPILING
    for _ in range(2):
        farm.run_again(Broken())
    job = farm.job(job.id)
    assert job.state is JobState.FAILED
    assert job.error["code"] == "store-unavailable"


@pytest.mark.parametrize("error", [TransientError("", code="store-full"), OSError(errno.ENOSPC, "no room")])
def test_a_full_disk_is_waited_for(farm, error: Exception) -> None:
    class Full(ReplayEngine):
        def compile(self, *args, **kwargs):
            raise error

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_engine(Full()).run()
    for _ in range(4):
        farm.run_again(Full())
    assert farm.job(job.id).state is JobState.COMPILING
    assert farm.events(job.id).count("retry") == 1
    farm.run_again(ReplayEngine())
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_a_full_disk_ends_no_search(farm, tuning_job) -> None:
    class Full(ReplayEngine):
        @contextmanager
        def measuring(self, *args, **kwargs):
            raise OSError(errno.ENOSPC, "no room")
            yield

    farm.with_engine(Full()).run()
    farm.run_again(ReplayEngine())
    assert farm.job(tuning_job.id).stop_reason == "trials"


def test_no_room_to_build_is_nobodys_fault(farm, tuning_job) -> None:
    full = ReplayEngine(answer=lambda *_: FULL_DISK)
    for _ in range(4):
        farm.run_again(full)
    assert farm.events(tuning_job.id).count("device-trouble") == 0
    assert farm.devices()[0].state is DeviceState.ONLINE
    farm.run_again(ReplayEngine())
    assert farm.job(tuning_job.id).stop_reason == "trials"


def test_a_bug_of_ours_shows_no_stack_to_users(farm) -> None:
    class Buggy(ReplayEngine):
        def compile(self, *args, **kwargs):
            return {}["missing"]

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_settings(max_step_faults=1).with_engine(Buggy()).run()
    error = farm.job(job.id).error
    assert error["code"] == "internal"
    assert error["message"] == "the compile step broke: KeyError: 'missing'"
    assert error["fields"] == {}


def test_an_upgraded_compiler_ends_the_job_with_a_clear_error(farm, tuning_job) -> None:
    class Newer(ReplayEngine):
        @property
        def toolchain(self) -> str:
            return "replay-2"

    farm.with_engine(Newer()).run()
    assert farm.job(tuning_job.id).error["code"] == "toolchain-changed"


def test_others_get_their_turn(farm) -> None:
    """After its turn, a job continues without a message only while no other job waits for a worker."""
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device("a", "one")
    farm.add_device("b", "two")
    farm = farm.with_settings(step_turn_sec=0.0)
    alone = farm.submit(model, trials=24, device_key="one")
    assert farm.run() == 3  # extract, one message for three rounds, compile
    assert farm.job(alone.id).state is JobState.SUCCEEDED
    farm.submit(model, trials=24, device_key="one", seed=1)
    farm.submit(model, trials=24, device_key="two", seed=2)
    assert farm.run() > 6
