"""History of devices: changes of state, calibrations, and the records measured on them."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import and_, delete, insert, select

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.tables import CalibrationRow, DeviceChangeRow, JobTaskRow, RecordRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import (
    Calibration,
    Device,
    DeviceChange,
    DeviceState,
    MeasuredHere,
    NewCalibration,
    Page,
)

_CHANGES = table_of(DeviceChangeRow)
_CALIBRATIONS = table_of(CalibrationRow)
_COMMANDS = (DeviceEvent.DRAIN, DeviceEvent.QUARANTINE, DeviceEvent.RELEASE, DeviceEvent.REMOVE)


class DeviceHistory(Repository):
    """Changes of a device's state and its calibrations, by time."""

    def note(self, device: Device, event: DeviceEvent) -> None:
        """Add a change of the device's state, and every command of a person.

        A due calibration that the device passes is no change: it would fill the history. So only a state that differs
        from the last one on record counts.
        """
        state = DeviceState.ONLINE if device.state is DeviceState.LEASED else device.state
        last = (
            select(DeviceChangeRow.state)
            .where(DeviceChangeRow.device_id == device.id)
            .order_by(DeviceChangeRow.id.desc())
            .limit(1)
        )
        if event not in _COMMANDS and self._run(last).scalar_one_or_none() is state:
            return
        values = {
            "id": new_id("dch"),
            "device_id": device.id,
            "event": event.value,
            "state": state,
            "reason": device.reason,
        }
        self._run(insert(_CHANGES).values(values))

    def changes(self, device_id: str, *, cursor: str | None = None, limit: int = 50) -> Page[DeviceChange]:
        """Return changes of the device's state, newest first."""
        query = select(_CHANGES).where(DeviceChangeRow.device_id == device_id)
        return self._page(DeviceChange, query, DeviceChangeRow.id, cursor=cursor, limit=limit)

    def add_calibration(self, device_id: str, calibration: NewCalibration) -> None:
        """Add the result of a calibration."""
        values = {"id": new_id("cal"), "device_id": device_id, **asdict(calibration)}
        self._run(insert(_CALIBRATIONS).values(values))

    def calibrations(
        self, device_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Calibration]:
        """Return the device's calibrations, newest first."""
        query = select(_CALIBRATIONS).where(CalibrationRow.device_id == device_id)
        return self._page(Calibration, query, CalibrationRow.id, cursor=cursor, limit=limit)

    def calibration_times(
        self, device_id: str, *, most: int
    ) -> list[tuple[float, str, float | None, float | None]]:
        """Return (created_at, outcome, time_sec, reference_sec) of the newest calibrations, oldest first."""
        query = (
            select(
                CalibrationRow.created_at,
                CalibrationRow.outcome,
                CalibrationRow.time_sec,
                CalibrationRow.reference_sec,
            )
            .where(CalibrationRow.device_id == device_id)
            .order_by(CalibrationRow.id.desc())
            .limit(most)
        )
        return [(row[0], row[1], row[2], row[3]) for row in reversed(self._run(query).all())]

    def measured(self, device_id: str, *, cursor: str | None = None, limit: int = 50) -> Page[MeasuredHere]:
        """Return the records that were measured on the device, newest first."""
        job_task = and_(
            JobTaskRow.job_id == RecordRow.job_id,
            JobTaskRow.workload_key == RecordRow.workload_key,
            JobTaskRow.toolchain == RecordRow.toolchain,
        )
        query = (
            select(
                RecordRow.id,
                RecordRow.workload_key,
                JobTaskRow.name,
                RecordRow.job_id,
                JobTaskRow.position,
                RecordRow.outcome,
                RecordRow.cost_sec,
                RecordRow.confirmed,
                RecordRow.message,
                RecordRow.measured_at,
            )
            .select_from(table_of(RecordRow).outerjoin(table_of(JobTaskRow), job_task))
            .where(RecordRow.device_id == device_id)
        )
        return self._page(MeasuredHere, query, RecordRow.id, cursor=cursor, limit=limit)

    def forget(self, age_sec: float, *, limit: int) -> int:
        """Delete changes and calibrations older than `age_sec`, at most `limit` of each; return how many."""
        gone = 0
        for table in (_CHANGES, _CALIBRATIONS):
            old = select(table.c.id).where(table.c.created_at < db_now() - age_sec).limit(limit)
            gone += int(self._run(delete(table).where(table.c.id.in_(old))).rowcount)
        return gone
