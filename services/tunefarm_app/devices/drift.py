"""Judge a run of the calibration kernel: is the result right, and is the device as fast as before? Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tunefarm_app.settings import Settings
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import CalibrationOutcome, Json, NewCalibration
from tunefarm_text.quantities import seconds
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.calibration import CalibrationRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The times that a run is compared with; `all_cores_sec` is None if the kernel runs on one core only."""

    time_sec: float
    all_cores_sec: float | None


def reference_of(run: CalibrationRun, own: Json | None, mates: Sequence[Json]) -> Reference:
    """Return the reference of a run: the device's own, else its pool's, else the run itself.

    Args:
        run: The run.
        own: The device's last clean calibration, as `calibration_row` stores it.
        mates: The stored calibrations of the other devices of its pool.
    """
    mine = [] if own is None else [own]

    def first(name: str, itself: float) -> float:
        for known in (mine, mates):
            # Older calibrations have no figure of all cores.
            times = [
                float(calibration[name])
                for calibration in known
                if calibration["key"] == run.key and calibration.get(name) is not None
            ]
            if times:
                return median(times)
        return itself

    return Reference(
        time_sec=first("reference_sec", run.time_sec),
        all_cores_sec=None
        if run.all_cores_sec is None
        else first("all_cores_reference_sec", run.all_cores_sec),
    )


def excess(run: CalibrationRun, reference: Reference, settings: Settings) -> float:
    """Return the drift of the run relative to the tolerated drift; over 1 is too much."""
    limit = settings.calibration_all_cores_drift
    shown = _drift(run.time_sec, reference.time_sec) / settings.calibration_drift
    if limit is None or run.all_cores_sec is None or reference.all_cores_sec is None:
        return shown
    return max(shown, _drift(run.all_cores_sec, reference.all_cores_sec) / limit)


def judge(run: CalibrationRun, reference: Reference, settings: Settings) -> tuple[DeviceEvent, str]:
    """Return the event that the run means for the device, and the reason."""
    if run.wrong is not None:
        return DeviceEvent.FAIL, f"the calibration kernel computed a wrong result: {clean(run.wrong, 200)}"
    if excess(run, reference, settings) <= 1.0:
        return DeviceEvent.CLEAN, ""
    if _drift(run.time_sec, reference.time_sec) > settings.calibration_drift:
        took, instead, where = run.time_sec, reference.time_sec, ""
    else:
        assert run.all_cores_sec is not None
        assert reference.all_cores_sec is not None
        took, instead, where = run.all_cores_sec, reference.all_cores_sec, " on all cores at once"
    return DeviceEvent.FAIL, (
        f"its clock drifts: the calibration kernel took {seconds(took)}{where} instead of {seconds(instead)}"
    )


def calibration_row(run: CalibrationRun, reference: Reference) -> Json:
    """Return the stored form of a clean run: the reference of later ones."""
    return {
        "key": run.key,
        "time_sec": run.time_sec,
        "reference_sec": reference.time_sec,
        "all_cores_sec": run.all_cores_sec,
        "all_cores_reference_sec": reference.all_cores_sec,
        **({} if run.clock_mhz is None else {"clock_mhz": run.clock_mhz}),
        "at": time.time(),
    }


def calibration_result(
    run: CalibrationRun, reference: Reference, event: DeviceEvent, reason: str
) -> NewCalibration:
    """Return the entry of a run in the device's history."""
    fine = CalibrationOutcome.CLEAN if event is DeviceEvent.CLEAN else CalibrationOutcome.DRIFT
    return NewCalibration(
        outcome=fine if run.wrong is None else CalibrationOutcome.WRONG,
        reason=reason,
        key=run.key,
        time_sec=run.time_sec,
        reference_sec=reference.time_sec,
        all_cores_sec=run.all_cores_sec,
        all_cores_reference_sec=reference.all_cores_sec,
    )


def _drift(time_sec: float, reference_sec: float) -> float:
    """Return the factor between a time and its reference, at least 1."""
    return max(time_sec / reference_sec, reference_sec / time_sec)
