"""Peaks of devices: the highest compute rate and bandwidth measured on each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.repositories.devices.devices import held_under
from tunefarm_db.tables import DevicePeakRow, DeviceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import DevicePeak, DeviceState, Json

_PEAKS = table_of(DevicePeakRow)
_KNOWN = (
    *_PEAKS.c,
    DeviceRow.name.label("device_name"),
    DeviceRow.device_key.label("device_key"),
    DeviceRow.device_model.label("device_model"),
)


class Peaks(Repository):
    """The newest peak of each device. The peak of a removed device stays, as its records do; a purge deletes both."""

    def put(self, device_id: str, fence: int, key: str, peak: Json) -> bool:
        """Replace the device's peak; return False if the device is no longer held under the fence."""
        if self._run(select(DeviceRow.id).where(held_under(device_id, fence))).first() is None:
            return False
        changes = {"key": key, "peak": peak, "measured_at": db_now()}
        self._run(
            self._insert(_PEAKS)
            .values(device_id=device_id, **changes)
            .on_conflict_do_update(index_elements=["device_id"], set_=changes)
        )
        return True

    def doubt(self, device_id: str) -> None:
        """Have the device's peak measured again: at its next calibration, which is due now."""
        self._run(update(_PEAKS).where(_PEAKS.c.device_id == device_id).values(measured_at=0.0))
        self._run(update(DeviceRow).where(DeviceRow.id == device_id).values(calibrate_at=db_now()))

    def get(self, device_id: str) -> DevicePeak | None:
        return self._first(DevicePeak, self._query().where(DevicePeakRow.device_id == device_id))

    def of_pool(self, device_key: str, *, trusted: bool = False) -> tuple[DevicePeak, ...]:
        """Return the peaks of a pool's devices, removed ones included, oldest first.

        Args:
            device_key: The pool.
            trusted: Leave out devices that are held or were removed.
        """
        query = self._query().where(DeviceRow.device_key == device_key)
        if trusted:
            query = query.where(DeviceRow.held.is_(False), DeviceRow.state != DeviceState.REMOVED)
        return self._all(DevicePeak, query.order_by(DevicePeakRow.measured_at, DevicePeakRow.device_id))

    def of_devices(self, device_ids: list[str]) -> dict[str, DevicePeak]:
        """Return the known peaks of these devices, by device id."""
        query = self._query().where(DevicePeakRow.device_id.in_(device_ids))
        return {peak.device_id: peak for peak in self._all(DevicePeak, query)}

    def _query(self) -> Select[*tuple[Any, ...]]:
        return select(*_KNOWN).join(table_of(DeviceRow), DeviceRow.id == DevicePeakRow.device_id)
