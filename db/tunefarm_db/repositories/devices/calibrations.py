"""Calibrations of devices: due dates, leases and results."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, case, or_, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.repositories.devices.devices import (
    CALIBRATION,
    Devices,
    columns,
    held_under,
    holders,
    transition,
)
from tunefarm_db.repositories.devices.history import DeviceHistory
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.tables import DeviceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Device, DeviceLease, DeviceState, Json, NewCalibration

_DEVICES = table_of(DeviceRow)


class Calibrations(Repository):
    """The calibration of devices.

    Concurrency: a calibration holds the device's lease, so that nothing is measured beside it. A request names the device's fence:
        it is void once anybody has leased the device since.
    """

    def mark_overdue(self) -> tuple[Device, ...]:
        """Mark online devices whose calibration is due as checking, so that they get no work; return them."""
        statement = (
            update(_DEVICES)
            .where(
                DeviceRow.state == DeviceState.ONLINE,
                or_(DeviceRow.calibrate_at.is_(None), DeviceRow.calibrate_at <= db_now()),
            )
            .values(calibrate_at=db_now(), **transition(DeviceEvent.DOUBT, "its calibration is due"))
        )
        return self._all(Device, statement.returning(*columns()))

    def take_due(self, *, again_after_sec: float) -> tuple[Device, ...]:
        """Return the free devices to calibrate now; each is returned again only after `again_after_sec`."""
        statement = (
            update(_DEVICES)
            .where(
                DeviceRow.state.in_([DeviceState.CHECKING, DeviceState.QUARANTINED]),
                DeviceRow.held.is_(False),
                DeviceRow.ready.is_(True),
                or_(DeviceRow.calibrate_at.is_(None), DeviceRow.calibrate_at <= db_now()),
                or_(DeviceRow.lease_until.is_(None), DeviceRow.lease_until < db_now()),
            )
            .values(calibrate_at=db_now() + again_after_sec)
        )
        return self._all(Device, statement.returning(*columns()))

    def lease(self, device_id: str, fence: int, owner: str, lease_sec: float) -> DeviceLease | None:
        """Lease the device for its calibration; None if the request is void or the device is not free."""
        condition = and_(
            DeviceRow.id == device_id,
            DeviceRow.fence == fence,
            DeviceRow.state.in_([DeviceState.CHECKING, DeviceState.QUARANTINED]),
            DeviceRow.held.is_(False),
            or_(DeviceRow.lease_until.is_(None), DeviceRow.lease_until < db_now()),
        )
        return Devices(self._connection).take(holders().where(condition).with_for_update(), owner, lease_sec)

    def finish(
        self,
        device_id: str,
        fence: int,
        *,
        event: DeviceEvent | None,
        reason: str,
        calibration: Json | None = None,
        result: NewCalibration | None = None,
        next_sec: float,
    ) -> Device | None:
        """Store the result of a calibration and release the device; return None if the lease was lost.

        A device that a person quarantined meanwhile stays quarantined.

        Args:
            device_id: The device.
            fence: The fence of the calibration's lease.
            event: The event for the device; None if the result says nothing about the device. From `QUARANTINE`, only a person
                releases it.
            reason: The reason if the result is not clean.
            calibration: The new reference for later calibrations.
            result: Its entry in the device's history; None if the calibration was called off.
            next_sec: When to calibrate again.
        """
        changes: dict[str, Any] = {
            "lease_owner": None,
            "lease_until": None,
            "calibrate_at": db_now() + next_sec,
        }
        if calibration is not None:
            changes["calibration"] = calibration
        if event is not None:
            changes |= transition(event, reason)
        if event is DeviceEvent.QUARANTINE:
            changes["held"] = True
        elif reason:
            waits = and_(DeviceRow.state == DeviceState.CHECKING, DeviceRow.held.is_(False))
            changes["reason"] = case((waits, reason), else_=DeviceRow.reason)
        statement = update(_DEVICES).where(held_under(device_id, fence)).values(changes)
        device = self._first(Device, statement.returning(*columns()))
        if device is None:
            return None
        Devices(self._connection).count_use(
            device_id, CALIBRATION, device.leased_at, (device.calibrate_at or 0.0) - next_sec
        )
        history = DeviceHistory(self._connection)
        if result is not None:
            history.add_calibration(device_id, result)
        if event is not None:
            history.note(device, event)
        return device
