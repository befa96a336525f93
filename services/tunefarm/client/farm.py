"""``client.devices`` and ``client.records``: the farm's machines and its history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tunefarm.client.device_past import AsyncDevicePast
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import get_all, get_page, walk
from tunefarm.client.http.transport import Transport, segment
from tunefarm.client.results.devices import Device, EnrolmentToken
from tunefarm.client.results.jobs import Page, Record


class AsyncDevices(AsyncDevicePast):
    """The machines that measure."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, device_id: str) -> Device:
        return Device.read(await self._transport.get(f"devices/{segment(device_id)}"))

    async def list(self, *, device_key: str | None = None, state: str | None = None) -> tuple[Device, ...]:
        """Return all devices, in the order they were first registered.

        Args:
            device_key: Only devices of this pool.
            state: Only devices in this state.
        """
        query = {"limit": 500, "device_key": device_key, "state": state}
        return await get_all(self._transport, "devices", query, Device.read)

    async def create_token(
        self, *, device_key: str | None = None, name: str | None = None, valid_sec: float = 900.0
    ) -> EnrolmentToken:
        """Make a token that lets one machine become a device, once (`tunefarm device join --token`).

        Args:
            device_key: The pool that it may join; None for any.
            name: The device that may use it; None for any new one.
            valid_sec: How long it is good.
        """
        body = {"device_key": device_key, "name": name, "valid_sec": valid_sec}
        return EnrolmentToken.read(await self._transport.post("devices/tokens", body))

    async def drain(self, device_id: str, *, reason: str = "") -> Device:
        """Let the device finish its round, and give it no further one until it is released."""
        return await self._order(device_id, "drain", reason)

    async def quarantine(self, device_id: str, *, reason: str = "") -> Device:
        """Give the device no work until it is released."""
        return await self._order(device_id, "quarantine", reason)

    async def release(self, device_id: str, *, reason: str = "") -> Device:
        """End draining or quarantine: the device is calibrated as if it had just come.

        Raises:
            ConflictError: ``device-state`` if it is neither drained nor quarantined.
        """
        return await self._order(device_id, "release", reason)

    async def remove(self, device_id: str) -> None:
        """Forget the device, and revoke its credential. Its records stay."""
        await self._transport.delete(f"devices/{segment(device_id)}")

    async def _order(self, device_id: str, word: str, reason: str) -> Device:
        path = f"devices/{segment(device_id)}/{word}"
        return Device.read(await self._transport.post(path, {"reason": reason}))


class AsyncRecords:
    """What has ever been measured."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
        operator: str | None = None,
        shape: str | Sequence[int] | None = None,
        outcome: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Record]:
        """Return records that match all filters given.

        Args:
            workload_key: Only of this computation.
            target_key: Only for this target, as records spell it.
            device_model: Only from such devices.
            toolchain: Only by this compiler version.
            operator: Only of kernels whose name has this in it (``conv2d``).
            shape: Only of kernels with an argument of such a shape, or a part of it: ``(56, 56, 64)`` or ``"56x56x64"``.
            outcome: Only what ended so.
            limit: At most so many.
            cursor: `Page.next_cursor` of the part before.
        """
        query = {
            "workload_key": workload_key,
            "target_key": target_key,
            "device_model": device_model,
            "toolchain": toolchain,
            "operator": operator,
            "shape": _shape(shape),
            "outcome": outcome,
            "limit": limit,
            "cursor": cursor,
        }
        return await get_page(self._transport, "records", query, Record.read)

    def all(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
        operator: str | None = None,
        shape: str | Sequence[int] | None = None,
        outcome: str | None = None,
    ) -> AsyncIterator[Record]:
        """Yield every record that matches (see `list`), page by page."""
        query = {
            "workload_key": workload_key,
            "target_key": target_key,
            "device_model": device_model,
            "toolchain": toolchain,
            "operator": operator,
            "shape": _shape(shape),
            "outcome": outcome,
            "limit": 500,
        }
        return walk(self._transport, "records", query, Record.read)

    def best(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
        operator: str | None = None,
        shape: str | Sequence[int] | None = None,
    ) -> AsyncIterator[Record]:
        """Yield the fastest record of every workload, target, device model and toolchain that matches (see `list`)."""
        query = {
            "workload_key": workload_key,
            "target_key": target_key,
            "device_model": device_model,
            "toolchain": toolchain,
            "operator": operator,
            "shape": _shape(shape),
            "limit": 100,
        }
        return walk(self._transport, "records/best", query, Record.read)


class Devices(Blocking[AsyncDevices]):
    """The machines that measure."""

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


class Records(Blocking[AsyncRecords]):
    """What has ever been measured."""

    list = blocking(AsyncRecords.list)
    all = blocking_each(AsyncRecords.all)
    best = blocking_each(AsyncRecords.best)


def _shape(shape: str | Sequence[int] | None) -> str | None:
    return shape if shape is None or isinstance(shape, str) else "x".join(map(str, shape))
