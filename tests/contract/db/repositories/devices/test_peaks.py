"""Peaks of devices: one per device, recorded by the holder of its lease."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Space, Workload


def test_a_peak_is_noted_under_the_lease(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.CLEAN)
        lease = repos.devices.lease("cpu", "calibration:w", 60.0)
        assert lease is not None
        assert repos.peaks.get(device.id) is None
        assert repos.peaks.put(device.id, lease.fence, "k1", {"figure": 1.5})
        assert repos.peaks.put(device.id, lease.fence, "k2", {"figure": 2.5})
        assert not repos.peaks.put(device.id, lease.fence + 1, "k3", {})
        peak = repos.peaks.get(device.id)
        now = repos.now()
        repos.devices.release_lease(device.id, lease.fence)
        assert not repos.peaks.put(device.id, lease.fence, "k4", {}), "given back"
    assert peak is not None
    assert (peak.key, peak.peak, peak.device_name) == ("k2", {"figure": 2.5}, device.name)
    assert (peak.device_key, peak.device_model) == ("cpu", device.device_model)
    assert peak.measured_at == pytest.approx(now, abs=60)


def test_peaks_of_a_pool_and_of_devices(uow: UnitOfWork, seed: Any) -> None:
    devices = [seed.device(name=name, device_key=pool) for name, pool in (("a", "x"), ("b", "x"), ("c", "y"))]
    with uow.write() as repos:
        for number, device in enumerate(devices):
            repos.devices.apply(device.id, DeviceEvent.CLEAN)
            lease = repos.devices.lease(device.device_key, "w", 60.0)
            while lease is not None and lease.device.id != device.id:
                lease = repos.devices.lease(device.device_key, "w", 60.0)
            assert lease is not None
            repos.peaks.put(device.id, lease.fence, str(number), {})
        repos.devices.apply(devices[0].id, DeviceEvent.REMOVE, "sold")
        assert [peak.key for peak in repos.peaks.of_pool("x")] == ["0", "1"], (
            "what it measured holds all the same"
        )
        assert [peak.key for peak in repos.peaks.of_pool("x", trusted=True)] == ["1"]
        repos.devices.apply(devices[1].id, DeviceEvent.QUARANTINE, "it lied", held=True)
        assert repos.peaks.of_pool("x", trusted=True) == ()
        assert set(repos.peaks.of_devices([devices[1].id, devices[2].id, "dev_none"])) == {
            devices[1].id,
            devices[2].id,
        }
        assert repos.peaks.of_devices([]) == {}


def test_what_spaces_say_of_what_is_computed(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        repos.workloads.add_many(
            [
                Workload(key=key, toolchain="tc", name=key, flops=1.0, args=[], ir="{}")
                for key in ("known", "none", "other")
            ]
        )
        for key, space in (
            ("known", {"computation": {"axes": [[8, False]]}}),
            ("none", {"computation": None}),
        ):
            repos.spaces.put(
                Space(
                    workload_key=key,
                    target_key="llvm",
                    toolchain="tc",
                    space={"sketches": [], **space},
                    space_key="k",
                    family="f",
                    extents=[],
                )
            )
        keys = ["known", "none", "other"]
        assert repos.spaces.computations(keys, target_key="llvm", toolchain="tc") == {
            "known": {"axes": [[8, False]]}
        }
        assert repos.spaces.computations(keys, target_key="cuda", toolchain="tc") == {}
