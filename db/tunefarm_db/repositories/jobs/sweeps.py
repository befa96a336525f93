"""Sweeps: jobs that were asked for together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TypedDict, Unpack

from sqlalchemy import insert, select, update

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import JobRow, SweepCellRow, SweepRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, Json, NewSweepCell, Page, Sweep, SweepCell
from tunefarm_tuning.core.errors import NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_SWEEPS, _CELLS, _JOBS = table_of(SweepRow), table_of(SweepCellRow), table_of(JobRow)


class NewSweep(TypedDict):
    """The columns of a new sweep."""

    budget: Json
    tags: Sequence[str]
    note: str
    idempotency_key: str | None
    request_digest: str


class Sweeps(Repository):
    """Sweeps and their cells."""

    def add(self, **columns: Unpack[NewSweep]) -> Sweep:
        """Add a sweep without cells.

        Raises:
            ConflictError: If the idempotency key is taken.
        """
        return self._add(Sweep, _SWEEPS, {"id": new_id("swp"), "owner": acting().owner, **columns})

    def add_cells(self, sweep_id: str, cells: Sequence[NewSweepCell]) -> None:
        """Add a sweep's cells, in order."""
        rows = [
            {"sweep_id": sweep_id, "position": position, **asdict(cell)}
            for position, cell in enumerate(cells)
        ]
        self._run(insert(_CELLS), rows)

    def get(self, sweep_id: str) -> Sweep:
        """Return a sweep.

        Raises:
            NotFoundError: ``sweep-not-found``.
        """
        missing = NotFoundError(
            f"there is no such sweep: {clean(sweep_id, 60)}", code="sweep-not-found", sweep_id=sweep_id
        )
        return self._required(Sweep, select(_SWEEPS).where(SweepRow.id == sweep_id), missing)

    def find_by_idempotency_key(self, key: str) -> Sweep | None:
        return self._first(Sweep, select(_SWEEPS).where(SweepRow.idempotency_key == key))

    def list(self, *, cursor: str | None = None, limit: int = 50) -> Page[Sweep]:
        """Return a page of sweeps, newest first."""
        return self._page(Sweep, select(_SWEEPS), SweepRow.id, cursor=cursor, limit=limit)

    def cells(self, sweep_ids: Collection[str]) -> dict[str, tuple[SweepCell, ...]]:
        """Return the cells of sweeps in their order, by sweep."""
        query = select(_CELLS).where(SweepCellRow.sweep_id.in_(sorted(sweep_ids)))
        cells: dict[str, tuple[SweepCell, ...]] = dict.fromkeys(sweep_ids, ())
        for cell in self._all(SweepCell, query.order_by(SweepCellRow.sweep_id, SweepCellRow.position)):
            cells[cell.sweep_id] += (cell,)
        return cells

    def jobs(self, sweep_ids: Collection[str]) -> dict[str, Job]:
        """Return the jobs of sweeps, by id."""
        query = (
            select(_JOBS)
            .join(_CELLS, SweepCellRow.job_id == JobRow.id)
            .where(SweepCellRow.sweep_id.in_(sorted(sweep_ids)))
        )
        return {job.id: job for job in self._all(Job, query)}

    def of_jobs(self, job_ids: Collection[str]) -> tuple[str, ...]:
        """Return the ids of the sweeps that these jobs belong to."""
        query = select(SweepCellRow.sweep_id).where(SweepCellRow.job_id.in_(sorted(job_ids))).distinct()
        return tuple(self._run(query.order_by(SweepCellRow.sweep_id)).scalars())

    def set_cancelled(self, sweep_id: str) -> None:
        """Note that a person cancelled a sweep; the first time counts."""
        self._run(
            update(_SWEEPS)
            .where(SweepRow.id == sweep_id, SweepRow.cancelled_at.is_(None))
            .values(cancelled_at=db_now())
        )
