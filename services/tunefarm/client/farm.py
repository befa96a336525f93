"""``client.devices`` and ``client.records``: the farm's machines and its history."""

from __future__ import annotations

from collections.abc import Iterator

from tunefarm.client.device_results import Device, EnrolmentToken
from tunefarm.client.paging import walk
from tunefarm.client.results import Page, Record
from tunefarm.client.transport import Transport, segment


class Devices:
    """The machines that measure."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, device_id: str) -> Device:
        return Device.read(self._transport.get(f"devices/{segment(device_id)}"))

    def list(self) -> tuple[Device, ...]:
        return tuple(
            walk(
                lambda cursor: Page.read(
                    self._transport.get("devices", {"limit": 500, "cursor": cursor}), Device.read
                )
            )
        )

    def create_token(
        self, *, device_key: str | None = None, name: str | None = None, valid_sec: float = 900.0
    ) -> EnrolmentToken:
        """Make a token that lets one machine become a device, once (`tunefarm device join --token`).

        Args:
            device_key: The pool that it may join; None for any.
            name: The device that may use it; None for any new one.
            valid_sec: How long it is good.
        """
        body = {"device_key": device_key, "name": name, "valid_sec": valid_sec}
        return EnrolmentToken.read(self._transport.post("devices/tokens", body))

    def drain(self, device_id: str, *, reason: str = "") -> Device:
        """Let the device finish its round, and give it no further one until it is released."""
        return self._order(device_id, "drain", reason)

    def quarantine(self, device_id: str, *, reason: str = "") -> Device:
        """Give the device no work until it is released."""
        return self._order(device_id, "quarantine", reason)

    def release(self, device_id: str, *, reason: str = "") -> Device:
        """End draining or quarantine: the device is calibrated as if it had just come.

        Raises:
            ConflictError: ``device-state`` if it is neither drained nor quarantined.
        """
        return self._order(device_id, "release", reason)

    def remove(self, device_id: str) -> None:
        """Forget the device, and revoke its credential. Its records stay."""
        self._transport.delete(f"devices/{segment(device_id)}")

    def _order(self, device_id: str, word: str, reason: str) -> Device:
        path = f"devices/{segment(device_id)}/{word}"
        return Device.read(self._transport.post(path, {"reason": reason}))


class Records:
    """What has ever been measured."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
        outcome: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Record]:
        """Return records that match all filters given."""
        query = {
            "workload_key": workload_key,
            "target_key": target_key,
            "device_model": device_model,
            "toolchain": toolchain,
            "outcome": outcome,
            "limit": limit,
            "cursor": cursor,
        }
        return Page.read(self._transport.get("records", query), Record.read)

    def all(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
        outcome: str | None = None,
    ) -> Iterator[Record]:
        """Yield every record that matches, page by page."""
        return walk(
            lambda cursor: self.list(
                workload_key=workload_key,
                target_key=target_key,
                device_model=device_model,
                toolchain=toolchain,
                outcome=outcome,
                limit=500,
                cursor=cursor,
            )
        )

    def best(
        self,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
        device_model: str | None = None,
        toolchain: str | None = None,
    ) -> Iterator[Record]:
        """Yield the fastest record of every workload, target, device model and toolchain that matches, page by page."""
        query = {
            "workload_key": workload_key,
            "target_key": target_key,
            "device_model": device_model,
            "toolchain": toolchain,
            "limit": 100,
        }
        return walk(
            lambda cursor: Page.read(
                self._transport.get("records/best", {**query, "cursor": cursor}), Record.read
            )
        )
