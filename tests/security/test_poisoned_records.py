"""A device that reports false times: they mislead nobody else, can be taken back, and what cannot be is not believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm

from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_app.devices.register import GUEST, DeviceRegistration, register_device
from tunefarm_app.engines.replay import TOOLCHAIN
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.records.purging import purge_records
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.core.errors import InvalidInputError

MODEL = "replay-cpu"


def guest_of(farm: Farm, pool: str = "guests", claims: str = MODEL) -> Device:
    """Enrol somebody else's device, which says that it is of the farm's own model."""
    token, _ = create_enrolment_token(farm.services, device_key=pool, guest=True)
    ((credential, _),) = enrol_devices(farm.services, token, names=["guest-1"], device_key=pool)
    registration = DeviceRegistration(
        name="guest-1",
        device_key=pool,
        target={"kind": "llvm", "num-cores": 2},
        info={},
        device_model=claims,
        rpc_key="key-guest",
    )
    device = register_device(farm.services, registration, guest=GUEST in credential.scopes)
    with farm.services.uow.write() as repos:
        return repos.devices.apply(device.id, DeviceEvent.CLEAN)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path))
    yield farm
    farm.services.close()


def test_a_guests_records_win_nothing_for_others(farm: Farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    guest = guest_of(farm)
    assert guest.device_model != MODEL
    poisoned = farm.submit(model, trials=8, device_key="guests")
    farm.run_until_quiet()
    assert farm.job(poisoned.id).state is JobState.SUCCEEDED
    farm.add_device()
    with farm.services.uow.read() as repos:
        (task,) = repos.jobs.tasks(poisoned.id)
        assert repos.records.for_job(poisoned.id)
        platform = {"target_key": poisoned.target_key, "toolchain": TOOLCHAIN}
        assert repos.records.best([task.workload_key], device_model=MODEL, **platform) == {}
        assert repos.records.history_ids(task.workload_key, device_model=MODEL, **platform) == ()
        own = repos.records.best([task.workload_key], device_model=guest.device_model, **platform)
    assert own, "its own pool learns from them"


@pytest.mark.parametrize("claims", ["guest:other:m", "guest:guests:m"])
def test_no_device_claims_a_guests_model(farm: Farm, claims: str) -> None:
    with pytest.raises(InvalidInputError):
        farm.add_device(device_model=claims)


def test_a_guest_is_of_one_pool(farm: Farm) -> None:
    with pytest.raises(InvalidInputError):
        create_enrolment_token(farm.services, guest=True)


def test_a_devices_records_are_taken_back(farm: Farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    liar = farm.add_device("liar")
    first = farm.submit(model, trials=8)
    farm.run_until_quiet()
    remove_device(farm.services, liar.id)
    honest = farm.add_device("honest")
    second = farm.submit(model, trials=4, seed=9)
    farm.run_until_quiet()
    purged = purge_records(farm.services, liar.id)
    assert purged.records == 8
    assert purged.measured_by == (first.id,)
    assert first.id in purged.used_by
    with farm.services.uow.read() as repos:
        left = repos.records.query(RecordFilter(), limit=100).items
        assert {record.device_id for record in left} == {honest.id}
    assert len(farm.trials(first.id)) == 8, "the job's trials stay"
    assert purge_records(farm.services, liar.id).records == 0
    assert farm.job(second.id).state is JobState.SUCCEEDED


def test_a_device_above_its_roofline_is_held(farm: Farm) -> None:
    model = farm.ready_model(Scenario(tasks=1, nests=True))
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=1.0)  # everything is faster than that
    job = farm.submit(model, trials=8)
    farm.run()
    (held,) = farm.devices()
    assert (held.state, held.held) == (DeviceState.QUARANTINED, True)
    assert "is impossible" in held.reason
    with farm.services.uow.read() as repos:
        assert repos.records.for_job(job.id) == ()
    assert farm.steps(job.id)[-1].error["code"] == "impossible-times"


def test_a_model_has_no_device_held_by_operations_that_a_compiler_leaves_out(farm: Farm) -> None:
    """A hundred signs in a row are one, or none; of a tensor of which one element is used, one is computed. All are counted."""
    model = farm.ready_model(Scenario(tasks=1))  # kernels without products
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=1.0)
    job = farm.submit(model, trials=8)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert not any(device.held for device in farm.devices())


def test_the_peak_of_a_liar_does_not_hide_another(farm: Farm) -> None:
    model = farm.ready_model(Scenario(tasks=1, nests=True))
    liar, device = farm.add_device("liar"), farm.add_device("other")
    farm.note_peak(liar, flops_per_sec=1e30)
    farm.note_peak(device, flops_per_sec=1.0)
    with farm.services.uow.write() as repos:
        repos.devices.apply(liar.id, DeviceEvent.QUARANTINE, "it lied", held=True)
    farm.submit(model, trials=8)
    farm.run()
    held = {device.name for device in farm.devices() if device.held}
    assert held == {"liar", "other"}


@pytest.mark.parametrize("is_measured_again", [False, True])
def test_a_purge_takes_false_times_out_of_what_jobs_show(farm: Farm, *, is_measured_again: bool) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    liar = farm.add_device("liar")
    job = farm.submit(model, trials=16)
    farm.run_until_quiet()
    assert farm.job(job.id).best_latency_sec is not None
    if is_measured_again:
        remove_device(farm.services, liar.id)
        farm.add_device("honest")
        farm.submit(model, trials=16, seed=9)
        farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        before = [task.best_cost_sec for task in repos.jobs.tasks(job.id)]
        theirs = {record.cost_sec for record in repos.records.for_job(job.id)}
    assert theirs.issuperset(before)
    purge_records(farm.services, liar.id)
    with farm.services.uow.read() as repos:
        tasks = repos.jobs.tasks(job.id)
        left = repos.records.best_costs(
            [task.workload_key for task in tasks],
            target_key=job.target_key,
            device_model=MODEL,
            toolchain=TOOLCHAIN,
        )
    assert bool(left) == is_measured_again
    assert [task.best_cost_sec for task in tasks] == [left.get(task.workload_key) for task in tasks]
    total = sum(task.weight * (task.best_cost_sec or 0.0) for task in tasks)
    shown_sec = farm.job(job.id).best_latency_sec
    assert shown_sec == (pytest.approx(total) if is_measured_again else None)
