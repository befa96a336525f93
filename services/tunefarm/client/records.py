"""``client.records``: read the farm's tuning records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Resource
from tunefarm.client.results.jobs import Record


class AsyncRecords(Resource):
    """What has ever been measured."""

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


class Records(Blocking[AsyncRecords]):
    """What has ever been measured."""

    list = blocking(AsyncRecords.list)
    all = blocking_each(AsyncRecords.all)
    best = blocking_each(AsyncRecords.best)


def _shape(shape: str | Sequence[int] | None) -> str | None:
    return shape if shape is None or isinstance(shape, str) else "x".join(map(str, shape))
