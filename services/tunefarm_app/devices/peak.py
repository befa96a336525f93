"""The peak of a device: its highest compute rate and bandwidth.

Measuring it takes seconds, a hundred times as long as the calibration kernel. So it is measured in the lease of a clean
calibration: at the first `_FIRST_RUNS` of a device, at each while it is doubtful, and then every
`Settings.peak_every_sec`. Disturbances only make a measurement slower, so the best value of each figure is kept. A device
without a peak works like any other; only the roofline of its kernels is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, DeviceLease, DevicePeak
from tunefarm_text.quantities import flops_per_sec
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.peak import Peak, peak_key
from tunefarm_tuning.target.target import Target

log = structlog.stdlib.get_logger(__name__)

_FIRST_RUNS = 3
"""The peak is measured at this many calibrations in a row, because a machine that has just joined is often busy."""


def measure_device_peak(services: Services, lease: DeviceLease, cancellation: Cancellation) -> None:
    """Measure and store the peak of a device after a clean calibration, if it is due.

    A failure does not count against the device: it is stored as the reason for the missing peak.

    Raises:
        DeviceLostError: If the device's session ended: the device must be calibrated again.
    """
    device = lease.device
    with services.uow.read() as repos:
        known, now = repos.peaks.get(device.id), repos.now()
    key = peak_key(Target.from_json(device.target), device.device_model)
    every_sec = services.settings.peak_every_sec
    before = known_peak(known)
    before = before if before is not None and before.key == key else None
    recent = known is not None and known.key == key and now < known.measured_at + every_sec
    settled = before is None or (before.runs >= _FIRST_RUNS and not before.doubtful)
    if every_sec == 0 or (recent and settled):
        return
    lost: DeviceLostError | None = None
    try:
        measured = services.require_engine().measure_peak(device, cancellation=cancellation)
    except Exception as error:
        if cancellation.cancelled:  # it failed because its child was closed
            raise
        lost = error if isinstance(error, DeviceLostError) else None
        unknown = None if isinstance(error, TunefarmError) else error
        log.warning(
            "peak not measured", device_id=device.id, name=device.name, error=str(error), exc_info=unknown
        )
        missing = clean(str(error), 300)
        # A device that was away had no chance. It may be away because of the peak, so it has no more than these.
        is_away = lost is not None and bool(lost.fields.get("away"))
        runs = min((0 if before is None else before.runs) + 1, _FIRST_RUNS) if is_away else _FIRST_RUNS
        if before is None:
            best = Peak(key=key, threads=1, measured_at=now, missing=missing, runs=runs)
        else:  # do not try again at the next calibration: a device that is lost each time would never get work
            best = replace(before, runs=max(before.runs, runs))
    else:
        best = measured if before is None else before.merged(measured)
        log.info("peak measured", device_id=device.id, name=device.name, missing=best.missing)
    with services.uow.write() as repos:
        repos.peaks.put(device.id, lease.fence, best.key, best.to_json())
    if lost is not None:
        raise lost


def known_peak(row: DevicePeak | None) -> Peak | None:
    """Return a stored peak; None if there is none, or this release cannot read it."""
    if row is None:
        return None
    try:
        return Peak.from_json(row.peak)
    except ValueError:
        return None


def certain_peak(peak: Peak) -> Peak:
    """Return a peak without its doubtful rates; `Peak.missing` says which they were, and why."""
    reasons = [
        f"{dtype}: {flops_per_sec(rate.all_cores, 1.0)} on {peak.threads} cores, hardly more than on one core: the device was busy, "
        "and is measured again"
        for dtype, rate in peak.doubtful.items()
    ]
    return replace(
        peak,
        flops_per_sec={
            dtype: rate for dtype, rate in peak.flops_per_sec.items() if dtype not in peak.doubtful
        },
        missing="; ".join(filter(None, [peak.missing, *reasons])),
    )


def peaks_of(repos: Repositories, devices: Sequence[Device]) -> dict[str, Peak]:
    """Return the known peaks of these devices, without doubtful rates, by device id."""
    rows = repos.peaks.of_devices([device.id for device in devices])
    known = {device_id: known_peak(row) for device_id, row in rows.items()}
    return {device_id: certain_peak(peak) for device_id, peak in known.items() if peak is not None}
