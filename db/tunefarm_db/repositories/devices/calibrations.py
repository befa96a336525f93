"""Calibrations of devices: which are due, who runs one, what came of it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, case, or_, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.repositories.devices.devices import CALIBRATION, Devices, columns, held_under, holders, moved
from tunefarm_db.repositories.devices.history import DeviceHistory
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.tables import DeviceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Device, DeviceLease, DeviceState, Json
from tunefarm_db.values.device_history import NewCalibration

_DEVICES = table_of(DeviceRow)


class Calibrations(Repository):
    """The calibration of devices.

    Concurrency: a calibration holds the device's lease, so that nothing is measured beside it. A request for one names
        the device's fence: once anybody has had the device since, the request is void.
    """

    def doubt_overdue(self) -> tuple[Device, ...]:
        """Let online devices whose next calibration is due have no further round until it is done; return them."""
        statement = (
            update(_DEVICES)
            .where(
                DeviceRow.state == DeviceState.ONLINE,
                or_(DeviceRow.calibrate_at.is_(None), DeviceRow.calibrate_at <= db_now()),
            )
            .values(calibrate_at=db_now(), **moved(DeviceEvent.DOUBT, "its calibration is due"))
        )
        return self._all(Device, statement.returning(*columns()))

    def take_due(self, *, again_after_sec: float) -> tuple[Device, ...]:
        """Return the free devices that are to be calibrated now; each comes again only `again_after_sec` later."""
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
        """Take the device that is to be calibrated; None where the request is void or the device is not free."""
        wanted = and_(
            DeviceRow.id == device_id,
            DeviceRow.fence == fence,
            DeviceRow.state.in_([DeviceState.CHECKING, DeviceState.QUARANTINED]),
            DeviceRow.held.is_(False),
            or_(DeviceRow.lease_until.is_(None), DeviceRow.lease_until < db_now()),
        )
        return Devices(self._connection).take(holders().where(wanted).with_for_update(), owner, lease_sec)

    def finish(
        self,
        device_id: str,
        fence: int,
        *,
        event: DeviceEvent | None,
        reason: str,
        calibration: Json | None = None,
        told: NewCalibration | None = None,
        next_sec: float,
    ) -> Device | None:
        """Note what a calibration said, and give the device back; None where it was no longer ours.

        A device that a person put into quarantine meanwhile stays there.

        Args:
            device_id: The device.
            fence: Of the calibration's lease.
            event: What it means for the device; None where it says nothing about it.
            reason: Why, where it is not clean.
            calibration: The new one to be held against.
            told: How it went, for the device's history; None where that is nobody's business: it was called off.
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
            changes |= moved(event, reason)
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
        if told is not None:
            history.add_calibration(device_id, told)
        if event is not None:
            history.note(device, event)
        return device
