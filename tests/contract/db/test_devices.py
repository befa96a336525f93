"""Devices: registration, health, leases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import DeviceState
from tunefarm_tuning.errors import NotFoundError

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
        assert repos.devices.count_by_state("cpu-2") == {DeviceState.ONLINE: 1}
        assert repos.devices.count_by_state("gpu") == {}
        with pytest.raises(NotFoundError):
            repos.devices.get("dev_nothing")


def test_list_filters_and_pages(uow: UnitOfWork, seed: Any) -> None:
    ids = [seed.device(f"node-{n}").id for n in range(3)]
    with uow.write() as repos:
        repos.devices.quarantine(ids[1], "it lies")
        first = repos.devices.list(limit=2)
        assert [d.id for d in first.items] == ids[:2]
        assert [d.id for d in repos.devices.list(limit=2, cursor=first.next_cursor).items] == ids[2:]
        (found,) = repos.devices.list(state=DeviceState.QUARANTINED, device_key="cpu").items
        assert (found.id, found.reason) == (ids[1], "it lies")


def test_a_silent_device_goes_offline_and_comes_back(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        assert repos.devices.mark_stale(3600) == ()
        (stale,) = repos.devices.mark_stale(-1)
        assert (stale.id, stale.state) == (device.id, DeviceState.OFFLINE)
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None
        back = repos.devices.heartbeat(device.id, info={"cores": 4})
        assert (back.state, back.reason, back.info) == (DeviceState.ONLINE, "", {"cores": 4})


def test_a_device_that_is_not_ready_is_offline(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device(ready=False, reason="it is starting")
    assert (device.state, device.reason) == (DeviceState.OFFLINE, "it is starting")
    with uow.write() as repos:
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None
        assert repos.devices.heartbeat(device.id, ready=True).state is DeviceState.ONLINE
        away = repos.devices.heartbeat(device.id, ready=False, reason="its tracker is away")
        assert (away.state, away.reason) == (DeviceState.OFFLINE, "its tracker is away")


def test_only_a_clean_run_ends_a_quarantine(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        sick = repos.devices.heartbeat(device.id, healthy=False, reason="the known kernel crashed")
        assert (sick.state, sick.reason) == (DeviceState.QUARANTINED, "the known kernel crashed")
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is None
        assert repos.devices.heartbeat(device.id).state is DeviceState.QUARANTINED
    assert seed.device().state is DeviceState.QUARANTINED
    with uow.write() as repos:
        assert repos.devices.get(device.id).reason == "the known kernel crashed"
        assert repos.devices.heartbeat(device.id, healthy=True).state is DeviceState.ONLINE
        assert repos.devices.lease("cpu", "a", LEASE_SEC) is not None
        with pytest.raises(NotFoundError):
            repos.devices.heartbeat("dev_nothing")
        with pytest.raises(NotFoundError):
            repos.devices.quarantine("dev_nothing", "x")


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
