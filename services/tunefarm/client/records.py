"""``client.records``: read the farm's tuning records, and add others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Unpack

from tunefarm.client.filters import PAGE_OF_ALL, BestFilters, RecordFilters, filter_query, takes_filters
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.devices import PurgedRecords
from tunefarm.client.results.jobs import Record, RecordImport
from tunefarm.client.results.models import WorkloadCode


class AsyncRecords(Resource):
    """The server's tuning records."""

    @takes_filters(RecordFilters)
    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **filters: Unpack[RecordFilters]
    ) -> Page[Record]:
        """Return a page of the records that match all filters.

        Args:
            **filters
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
        """
        query = {**filter_query(filters, RecordFilters), "limit": limit, "cursor": cursor}
        return await get_page(self._transport, "records", query, Record.read)

    @takes_filters(RecordFilters)
    def all(self, **filters: Unpack[RecordFilters]) -> AsyncIterator[Record]:
        """Yield every record that matches all filters, page by page.

        Args:
            **filters
        """
        query = {**filter_query(filters, RecordFilters), "limit": PAGE_OF_ALL}
        return walk(self._transport, "records", query, Record.read)

    @takes_filters(BestFilters)
    def best(self, **filters: Unpack[BestFilters]) -> AsyncIterator[Record]:
        """Yield the fastest matching record of every workload, target, device model and toolchain.

        Args:
            **filters
        """
        query = {**filter_query(filters, BestFilters), "limit": 100}
        return walk(self._transport, "records/best", query, Record.read)

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


class Records(Blocking[AsyncRecords]):
    """The server's tuning records."""

    list = blocking(AsyncRecords.list)
    all = blocking_each(AsyncRecords.all)
    best = blocking_each(AsyncRecords.best)
    add = blocking(AsyncRecords.add)
    purge = blocking(AsyncRecords.purge)
    purge_imports = blocking(AsyncRecords.purge_imports)
    workload = blocking(AsyncRecords.workload)
