"""``client.records``: read the farm's tuning records, and add others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.devices import PurgedRecords
from tunefarm.client.results.jobs import Record, RecordImport
from tunefarm.client.results.models import WorkloadCode


class AsyncRecords(Resource):
    """The server's tuning records."""

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
        """Return a page of the records that match all filters.

        Args:
            workload_key: Only records of this computation.
            target_key: Only records for this target, spelled as in records.
            device_model: Only records of this device model.
            toolchain: Only records by this compiler version.
            operator: Only records of kernels whose name contains this (``conv2d``).
            shape: Only records of kernels with an argument whose shape contains this: ``(56, 56, 64)`` or
                ``"56x56x64"``.
            outcome: Only records of this outcome.
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
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
        """Yield every record that matches all filters, page by page.

        Args:
            workload_key: Only records of this computation.
            target_key: Only records for this target, spelled as in records.
            device_model: Only records of this device model.
            toolchain: Only records by this compiler version.
            operator: Only records of kernels whose name contains this (``conv2d``).
            shape: Only records of kernels with an argument whose shape contains this: ``(56, 56, 64)`` or
                ``"56x56x64"``.
            outcome: Only records of this outcome.
        """
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

    async def add(self, file: Path | str, *, keep_unknown: bool = False) -> RecordImport:
        """Add the records of a file of JSON lines to the farm's history: all, or, if a line is no record, none.

        Records that the farm has already are left out, so an import can be repeated.

        Args:
            file: JSON lines, as `tunefarm records export` and `tune(log_path=...)` of the engine write them.
            keep_unknown: Whether to add records of workloads that no model of the farm has.

        Raises:
            InvalidRequestError: ``invalid-record``, ``records-incomplete`` or ``too-large``.
        """
        query = {"keep_unknown": "true" if keep_unknown else None}
        return RecordImport.read(await self._transport.upload("records", query, Path(file), None))

    async def purge(
        self, device_id: str, *, certificate_sha256: str | None = None, ticket_jti: str | None = None
    ) -> PurgedRecords:
        """Delete the records that a device measured, also of one that was removed. Needs a key with the scope admin.

        Artifacts stay; the answer names the jobs whose artifacts were compiled with these records.

        Args:
            device_id: The device.
            certificate_sha256: Only records of this certificate of its agent.
            ticket_jti: Only records of the session of this ticket.

        Raises:
            NotFoundError: If there is no such device.
        """
        body = {
            "device_id": device_id,
            "certificate_sha256": certificate_sha256,
            "ticket_jti": ticket_jti,
        }
        return PurgedRecords.read(await self._transport.post("records/purge", body))

    async def purge_imports(self, key_id: str) -> PurgedRecords:
        """Delete the records that a key, or another one of its rotation, imported. Needs a key with the scope admin.

        Args:
            key_id: The key; it may have been revoked.

        Raises:
            NotFoundError: If there is no such key.
        """
        return PurgedRecords.read(await self._transport.post("records/purge", {"key_id": key_id}))

    async def workload(self, workload_key: str, toolchain: str) -> WorkloadCode:
        """Return a workload with its code, which TVM of this toolchain reads.

        Raises:
            NotFoundError: If the farm has no such workload.
        """
        path = f"workloads/{segment(workload_key)}/code"
        return WorkloadCode.read(await self._transport.get(path, {"toolchain": toolchain}))

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
        """Yield the fastest matching record of every workload, target, device model and toolchain.

        Args:
            workload_key: Only records of this computation.
            target_key: Only records for this target, spelled as in records.
            device_model: Only records of this device model.
            toolchain: Only records by this compiler version.
            operator: Only records of kernels whose name contains this (``conv2d``).
            shape: Only records of kernels with an argument whose shape contains this: ``(56, 56, 64)`` or
                ``"56x56x64"``.
        """
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


class Records(Blocking[AsyncRecords]):
    """The server's tuning records."""

    list = blocking(AsyncRecords.list)
    all = blocking_each(AsyncRecords.all)
    best = blocking_each(AsyncRecords.best)
    add = blocking(AsyncRecords.add)
    purge = blocking(AsyncRecords.purge)
    purge_imports = blocking(AsyncRecords.purge_imports)
    workload = blocking(AsyncRecords.workload)


def _shape(shape: str | Sequence[int] | None) -> str | None:
    return shape if shape is None or isinstance(shape, str) else "x".join(map(str, shape))
