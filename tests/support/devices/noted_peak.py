"""Made-up peaks of devices."""

from __future__ import annotations

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Device
from tunefarm_tuning.measure.peak import Bandwidth, Peak, Rate, peak_key
from tunefarm_tuning.target.target import Target


def noted_peak(
    services: Services,
    device: Device,
    *,
    flops_per_sec: float,
    bytes_per_sec: float = 1e10,
    threads: int = 2,
) -> Peak:
    """Note an online, free device's peak, as its calibration would: so much on one core, and twice as much on all of them."""
    peak = Peak(
        key=peak_key(Target.from_json(device.target), device.device_model),
        threads=threads,
        measured_at=1.0,
        flops_per_sec={"float32": Rate(one_core=flops_per_sec, all_cores=2 * flops_per_sec)},
        bandwidth=(
            Bandwidth(
                working_set_bytes=16,
                bytes_per_sec=Rate(one_core=bytes_per_sec, all_cores=2 * bytes_per_sec),
            ),
        ),
    )
    with services.uow.write() as repos:
        leases = [repos.devices.lease(device.device_key, "calibration:test", 60.0)]
        while leases[-1] is not None and leases[-1].device.id != device.id:
            leases.append(repos.devices.lease(device.device_key, "calibration:test", 60.0))
        held = [lease for lease in leases if lease is not None]
        assert held[-1].device.id == device.id, "it is not free"
        assert repos.peaks.put(device.id, held[-1].fence, peak.key, peak.to_json())
        for lease in held:
            repos.devices.release_lease(lease.device.id, lease.fence)
    return peak
