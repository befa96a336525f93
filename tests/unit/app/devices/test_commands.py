"""People's commands to a device, while a job runs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from app_farm import Farm
from waiting import wait_until

from tunefarm_app.devices.commands import command_device, remove_device
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Device, DeviceState, Job
from tunefarm_tuning.core.errors import ConflictError, NotFoundError


def start_job(farm: Farm) -> Job:
    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, trials=8, round_size=4)
    farm.run(steps=1)  # its tasks
    return job


def during_measurement(farm: Farm, act: Callable[[], Any]) -> Farm:
    """Return the farm with an engine that acts once, in the middle of the first round, and a round per message."""
    acted: list[Any] = []

    def answer(task: Any, config: Any) -> Any:
        if not acted:
            acted.append(act())
        return landscape_answer(task, config)

    return farm.with_engine(ReplayEngine(answer)).with_settings(step_chain_sec=0.0)


@pytest.mark.parametrize(
    ("event", "state"),
    [(DeviceEvent.DRAIN, DeviceState.DRAINING), (DeviceEvent.QUARANTINE, DeviceState.QUARANTINED)],
)
def test_the_round_at_hand_counts_and_there_is_no_further_one(
    farm: Farm, event: DeviceEvent, state: DeviceState
) -> None:
    device = farm.add_device()
    job = start_job(farm)
    during_measurement(farm, lambda: command_device(farm.services, device.id, event)).run()
    assert farm.job(job.id).trials == 4
    assert "waiting" in farm.job(job.id).progress
    ordered = farm.device(device.id)
    assert (ordered.state, ordered.lease_owner) == (state, None)

    command_device(farm.services, device.id, DeviceEvent.RELEASE)
    heartbeat(farm.services, device.id)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert farm.job(job.id).trials == 8


def test_what_a_removed_device_was_measuring_is_measured_elsewhere(farm: Farm) -> None:
    device = farm.add_device("goes")
    job = start_job(farm)

    def remove() -> Device:
        farm.add_device("stays")
        return remove_device(farm.services, device.id)

    during_measurement(farm, remove).run(steps=1)
    assert farm.job(job.id).trials == 0, "nobody knows who measured beside it"
    (error,) = [step.error for step in farm.steps(job.id) if step.error]
    assert error["code"] in ("device-lease-lost", "device-lost")

    def is_done() -> bool:
        farm.run_until_quiet()
        return farm.job(job.id).state.is_finished

    wait_until(is_done, "the job")
    done = farm.job(job.id)
    assert (done.state, done.trials) == (JobState.SUCCEEDED, 8)
    with pytest.raises(NotFoundError):
        farm.device(device.id)


def test_orders_that_make_no_sense(farm: Farm) -> None:
    device = farm.add_device()
    with pytest.raises(ConflictError) as caught:
        command_device(farm.services, device.id, DeviceEvent.RELEASE)
    assert (caught.value.code, caught.value.fields) == ("device-state", {"state": "online"})
    with pytest.raises(NotFoundError):
        remove_device(farm.services, "dev_none")
