"""Devices: registration, health, leases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_db.states.device import TRANSITIONS, DeviceEvent
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.errors import NotFoundError

LEASE_SEC = 600.0


def test_registering_again_renews(uow: UnitOfWork, seed: Any) -> None:
    first = seed.device()
    again = seed.device(device_key="cpu-2", rpc_key="another")
    assert (again.id, again.created_at) == (first.id, first.created_at)
    assert (again.device_key, again.rpc_key, again.state) == ("cpu-2", "another", DeviceState.ONLINE)
    seed.device("node-2")
    with uow.read() as repos:
        assert repos.devices.keys() == ("cpu", "cpu-2")
        assert [d.name for d in repos.devices.in_pool("cpu")] == ["node-2"]
        assert repos.devices.counts("cpu-2").by_state == {DeviceState.ONLINE: 1}
        assert repos.devices.counts("gpu").by_state == {}
        with pytest.raises(NotFoundError):
            repos.devices.get("dev_nothing")


def test_list_filters_and_pages(uow: UnitOfWork, seed: Any) -> None:
    ids = [seed.device(f"node-{n}").id for n in range(3)]
    with uow.write() as repos:
        repos.devices.apply(ids[1], DeviceEvent.QUARANTINE, "it lies")
        first = repos.devices.list(limit=2)
        assert [d.id for d in first.items] == ids[:2]
        assert [d.id for d in repos.devices.list(limit=2, cursor=first.next_cursor).items] == ids[2:]
        (device,) = repos.devices.list(state=DeviceState.QUARANTINED, device_key="cpu").items
        assert (device.id, device.reason) == (ids[1], "it lies")


def test_a_silent_device_goes_offline_and_comes_back(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        assert repos.devices.mark_stale(3600) == ()
        (stale,) = repos.devices.mark_stale(-1)
        assert (stale.id, stale.state, stale.ready) == (device.id, DeviceState.OFFLINE, False)
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None
        back = repos.devices.heartbeat(device.id, info={"cores": 4})
        assert (back.state, back.info, back.ready) == (DeviceState.CHECKING, {"cores": 4}, True)


def test_a_silent_quarantined_device_is_not_calibrated(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.FAIL, "wrong answer")
        (silent,) = repos.devices.mark_stale(-1)
        assert (silent.state, silent.reason, silent.ready) == (DeviceState.QUARANTINED, "wrong answer", False)
        assert repos.devices.mark_stale(-1) == ()
        assert repos.calibrations.take_due(again_after_sec=600) == ()
        repos.devices.heartbeat(device.id)
        assert len(repos.calibrations.take_due(again_after_sec=600)) == 1


def test_a_device_that_is_not_ready_is_offline(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device(ready=False, reason="it is starting")
    assert (device.state, device.reason) == (DeviceState.OFFLINE, "it is starting")
    with uow.write() as repos:
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None
        assert repos.devices.heartbeat(device.id, ready=True).state is DeviceState.CHECKING
        away = repos.devices.heartbeat(device.id, ready=False, reason="the gateway is away")
        assert (away.state, away.reason) == (DeviceState.OFFLINE, "the gateway is away")


def stored(state: DeviceState, uow: UnitOfWork, device: Any) -> None:
    with uow.write() as repos:
        repos._connection.execute(
            text("UPDATE devices SET state = :state, reason = 'before', held = FALSE"), {"state": state.value}
        )


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("event", list(DeviceEvent))
def test_every_event_does_what_the_table_says(uow: UnitOfWork, seed: Any, event: DeviceEvent) -> None:
    device = seed.device()
    for state in DeviceState:
        if state in (DeviceState.LEASED, DeviceState.REMOVED):
            continue
        stored(state, uow, device)
        with uow.write() as repos:
            after = repos.devices.apply(device.id, event, "after")
            (listed,) = repos.devices.list(state=after.state).items
        wanted = TRANSITIONS[event].get(state)
        assert (after.state, after.reason) == ((wanted, "after") if wanted else (state, "before"))
        assert listed == after


def test_a_removed_device_is_gone_until_it_joins_again(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        lease = repos.devices.lease("cpu", "a", LEASE_SEC)
        assert lease is not None
        assert repos.devices.apply(device.id, DeviceEvent.REMOVE).state is DeviceState.REMOVED
        assert not repos.devices.renew_lease(device.id, lease.fence, LEASE_SEC)
        assert repos.devices.list().items == repos.devices.in_pool("cpu") == repos.devices.keys() == ()
        assert repos.devices.counts("cpu").by_state == {}
        assert repos.devices.find("node-1") is None
        for call in (repos.devices.get, repos.devices.heartbeat):
            with pytest.raises(NotFoundError):
                call(device.id)
        with pytest.raises(NotFoundError):
            repos.devices.apply(device.id, DeviceEvent.RELEASE)
        assert [d.id for d in repos.devices.list(state=DeviceState.REMOVED).items] == [device.id]
    assert seed.newcomer().state is DeviceState.CHECKING


def test_a_leased_device_shows_it(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        lease = repos.devices.lease("cpu", "a", LEASE_SEC)
        assert lease is not None
        assert lease.device.state is repos.devices.get(device.id).state is DeviceState.LEASED
        assert repos.devices.counts("cpu").by_state == {DeviceState.LEASED: 1}
        assert repos.devices.list(state=DeviceState.ONLINE).items == ()
        draining = repos.devices.apply(device.id, DeviceEvent.DRAIN, "by a person")
        assert draining.state is DeviceState.DRAINING
        assert repos.devices.renew_lease(device.id, lease.fence, LEASE_SEC), "it finishes its round"
        repos.devices.release_lease(device.id, lease.fence)
        assert repos.devices.lease("cpu", "b", LEASE_SEC) is None
    assert seed.device().state is DeviceState.DRAINING, "also if its agent starts anew"
    with uow.write() as repos:
        assert repos.devices.apply(device.id, DeviceEvent.RELEASE).state is DeviceState.OFFLINE
        assert repos.devices.heartbeat(device.id).state is DeviceState.CHECKING
        repos.devices.apply(device.id, DeviceEvent.CLEAN)
        repos.devices.lease("cpu", "c", LEASE_SEC)
    expire("devices", device.id)
    with uow.read() as repos:
        assert repos.devices.get(device.id).state is DeviceState.ONLINE


def test_a_calibration_holds_the_device(uow: UnitOfWork, seed: Any) -> None:
    device = seed.newcomer()
    with uow.write() as repos:
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None, "not before it was calibrated"
        (due,) = repos.calibrations.take_due(again_after_sec=600)
        assert (due.id, due.fence) == (device.id, 0)
        assert repos.calibrations.take_due(again_after_sec=600) == (), "asked for once"
        lease = repos.calibrations.lease(device.id, 0, "w", LEASE_SEC)
        assert lease is not None
        assert repos.calibrations.lease(device.id, 0, "x", LEASE_SEC) is None, "the request is void now"
        assert repos.calibrations.lease(device.id, 1, "x", LEASE_SEC) is None, "and the device is taken"
        held = repos.calibrations.finish(
            device.id, 1, event=DeviceEvent.CLEAN, reason="", calibration={"time_sec": 1.0}, next_sec=600
        )
        assert held is not None
        assert (held.state, held.calibration, held.lease_owner) == (
            DeviceState.ONLINE,
            {"time_sec": 1.0},
            None,
        )
        late = repos.calibrations.finish(device.id, 1, event=DeviceEvent.FAIL, reason="x", next_sec=600)
        assert late is None
        assert repos.devices.get(device.id).state is DeviceState.ONLINE
        assert repos.calibrations.mark_overdue() == ()


def test_an_overdue_device_finishes_its_round_first(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        lease = repos.devices.lease("cpu", "a", LEASE_SEC)
        assert lease is not None
        (doubted,) = repos.calibrations.mark_overdue()
        assert (doubted.state, doubted.reason) == (DeviceState.CHECKING, "its calibration is due")
        assert repos.calibrations.take_due(again_after_sec=600) == ()
        repos.devices.release_lease(device.id, lease.fence)
        assert repos.devices.lease("cpu", "b", LEASE_SEC) is None
        assert len(repos.calibrations.take_due(again_after_sec=600)) == 1


def test_a_person_has_the_last_word(uow: UnitOfWork, seed: Any) -> None:
    device = seed.newcomer()
    with uow.write() as repos:
        assert repos.calibrations.lease(device.id, 0, "w", LEASE_SEC) is not None
        repos.devices.apply(device.id, DeviceEvent.QUARANTINE, "it rattles", held=True)
        after = repos.calibrations.finish(device.id, 1, event=DeviceEvent.CLEAN, reason="", next_sec=0)
        assert after is not None
        assert (after.state, after.reason, after.lease_owner) == (DeviceState.QUARANTINED, "it rattles", None)
        assert repos.devices.apply(device.id, DeviceEvent.FAIL, "x").reason == "it rattles"
        assert repos.calibrations.take_due(again_after_sec=600) == ()
        repos.devices.apply(device.id, DeviceEvent.RELEASE, "released", held=False)
        assert repos.devices.heartbeat(device.id).state is DeviceState.CHECKING
        assert len(repos.calibrations.take_due(again_after_sec=600)) == 1


def test_a_lease_is_exclusive_and_fenced(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        lease = repos.devices.lease("cpu", "a", LEASE_SEC)
        assert lease is not None
        assert (lease.device.id, lease.owner, lease.fence) == (device.id, "a", 1)
        assert repos.devices.lease("cpu", "b", LEASE_SEC) is None
        assert repos.devices.lease("gpu", "b", LEASE_SEC) is None
        assert repos.devices.renew_lease(device.id, 1, LEASE_SEC)
    expire("devices", device.id)
    with uow.write() as repos:
        second = repos.devices.lease("cpu", "b", LEASE_SEC)
        assert second is not None
        assert second.fence == 2
        assert not repos.devices.renew_lease(device.id, 1, LEASE_SEC)
        assert not repos.devices.release_lease(device.id, 1)
        assert repos.devices.release_lease(device.id, 2)
        assert not repos.devices.release_lease(device.id, 2)
        assert not repos.devices.renew_lease(device.id, 2, LEASE_SEC)


def test_leases_of_many_workers_never_overlap(uow: UnitOfWork, seed: Any) -> None:
    for number in range(3):
        seed.device(f"node-{number}")
    start = threading.Barrier(6)

    def lease(owner: int) -> str | None:
        start.wait(60)
        with uow.write() as repos:
            held = repos.devices.lease("cpu", f"w{owner}", LEASE_SEC)
        return held.device.id if held else None

    with ThreadPoolExecutor(6) as pool:
        held = [device_id for device_id in pool.map(lease, range(6)) if device_id]
    assert len(held) == len(set(held)) == 3


def test_the_least_used_device_is_taken_first(uow: UnitOfWork, seed: Any) -> None:
    ids = [seed.device(f"node-{n}").id for n in range(2)]
    with uow.write() as repos:
        taken = []
        for _ in range(4):
            lease = repos.devices.lease("cpu", "a", LEASE_SEC)
            assert lease is not None
            repos.devices.release_lease(lease.device.id, lease.fence)
            taken.append(lease.device.id)
    assert taken == [*ids, *ids]
