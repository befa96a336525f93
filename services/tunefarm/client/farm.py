"""``client.devices`` and ``client.records``: the farm's machines and its history."""

from __future__ import annotations

from collections.abc import Iterator

from tunefarm.client.paging import walk
from tunefarm.client.results import Device, Page, Record
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
