"""``client.devices``: list devices, change their state, read their history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tunefarm.client.http.blocking import Blocking, blocking
from tunefarm.client.http.paging import Page, get_all, get_page
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.devices import (
    Device,
    DeviceCalibration,
    DeviceChange,
    DeviceInterval,
    DeviceRecord,
    DeviceTotals,
    EnrolmentToken,
)

T = TypeVar("T")


class AsyncDevices(Resource):
    """The farm's devices."""

    async def get(self, device_id: str) -> Device:
        """Return a device.

        Raises:
            NotFoundError: If there is no such device.
        """
        return Device.read(await self._transport.get(f"devices/{segment(device_id)}"))

    async def list(self, *, device_key: str | None = None, state: str | None = None) -> tuple[Device, ...]:
        """Return all devices in the order of their first registration.

        Args:
            device_key: Only devices of this pool.
            state: Only devices in this state.
        """
        query = {"limit": 500, "device_key": device_key, "state": state}
        return await get_all(self._transport, "devices", query, Device.read)

    async def create_token(
        self,
        *,
        device_key: str | None = None,
        name: str | None = None,
        valid_sec: float = 900.0,
        guest: bool = False,
    ) -> EnrolmentToken:
        """Create a token with which one machine can become a device, once (`tunefarm device join --token`).

        Args:
            device_key: Pool that the machine may join; None for any.
            name: Device that may use the token; None for any new device.
            valid_sec: Validity in seconds.
            guest: Whether the device is somebody else's: its records count in its pool alone, which must be given.
        """
        body = {"device_key": device_key, "name": name, "valid_sec": valid_sec}
        if guest:
            body["guest"] = True
        return EnrolmentToken.read(await self._transport.post("devices/tokens", body))

    async def drain(self, device_id: str, *, reason: str = "") -> Device:
        """Drain the device: it finishes its current round and gets no more work until it is released.

        Args:
            device_id: The device.
            reason: Reason that pages and commands show.

        Raises:
            NotFoundError: If there is no such device.
            ConflictError: ``device-state`` if it is quarantined or removed.
        """
        return await self._command(device_id, "drain", reason)

    async def quarantine(self, device_id: str, *, reason: str = "") -> Device:
        """Quarantine the device: it gets no work until it is released.

        Args:
            device_id: The device.
            reason: Reason that pages and commands show.

        Raises:
            NotFoundError: If there is no such device.
            ConflictError: ``device-state`` if it is removed.
        """
        return await self._command(device_id, "quarantine", reason)

    async def release(self, device_id: str, *, reason: str = "") -> Device:
        """End the device's draining or quarantine. It gets work after a new calibration.

        Args:
            device_id: The device.
            reason: Reason that pages and commands show.

        Raises:
            NotFoundError: If there is no such device.
            ConflictError: ``device-state`` if it is neither drained nor quarantined.
        """
        return await self._command(device_id, "release", reason)

    async def remove(self, device_id: str) -> None:
        """Remove the device and revoke its credential. Its records stay."""
        await self._transport.delete(f"devices/{segment(device_id)}")

    async def intervals(self, device_id: str, *, span: str = "day") -> tuple[DeviceInterval, ...]:
        """Return the device's use, temperature, load and clock over time, oldest first.

        Args:
            device_id: The device.
            span: Period, ``hour``, ``day``, ``week`` or ``month``, in 60 to 97 intervals.
        """
        path = f"devices/{segment(device_id)}/intervals"
        return (await get_page(self._transport, path, {"span": span}, DeviceInterval.read)).items

    async def totals(self, device_id: str) -> DeviceTotals:
        """Return the device's totals."""
        return DeviceTotals.read(await self._transport.get(f"devices/{segment(device_id)}/totals"))

    async def calibrations(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceCalibration]:
        """Return a page of the device's calibrations, newest first.

        Args:
            device_id: The device.
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
        """
        return await self._history(device_id, "calibrations", limit, cursor, DeviceCalibration.read)

    async def changes(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceChange]:
        """Return a page of the device's state changes, newest first, without passed calibrations.

        Args:
            device_id: The device.
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
        """
        return await self._history(device_id, "changes", limit, cursor, DeviceChange.read)

    async def records(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceRecord]:
        """Return a page of the device's records, newest first.

        Args:
            device_id: The device.
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
        """
        return await self._history(device_id, "records", limit, cursor, DeviceRecord.read)

    async def _history(
        self, device_id: str, kind: str, limit: int, cursor: str | None, read: Callable[[object], T]
    ) -> Page[T]:
        query = {"limit": limit, "cursor": cursor}
        return await get_page(self._transport, f"devices/{segment(device_id)}/{kind}", query, read)

    async def _command(self, device_id: str, command: str, reason: str) -> Device:
        path = f"devices/{segment(device_id)}/{command}"
        return Device.read(await self._transport.post(path, {"reason": reason}))


class Devices(Blocking[AsyncDevices]):
    """The farm's devices."""

    get = blocking(AsyncDevices.get)
    list = blocking(AsyncDevices.list)
    create_token = blocking(AsyncDevices.create_token)
    drain = blocking(AsyncDevices.drain)
    quarantine = blocking(AsyncDevices.quarantine)
    release = blocking(AsyncDevices.release)
    remove = blocking(AsyncDevices.remove)
    intervals = blocking(AsyncDevices.intervals)
    totals = blocking(AsyncDevices.totals)
    calibrations = blocking(AsyncDevices.calibrations)
    changes = blocking(AsyncDevices.changes)
    records = blocking(AsyncDevices.records)
