"""Purges: records that cannot be trusted go, of a device or imported by a key, with everything that rests on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, select, update

from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.repositories.records.records import KEY, Records, config_key
from tunefarm_db.tables import (
    ArtifactRow,
    DevicePeakRow,
    FindingRow,
    JobRow,
    JobTaskRow,
    RecordRow,
    SourceRow,
    TrialRow,
    table_of,
)

_RECORDS = table_of(RecordRow)
_Platform = tuple[str, str, str]
"""Target key, device model, toolchain."""
_FARM, _USED = "farm", "records"  # where an artifact's report says which records it was compiled with


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What a purge removed.

    Attributes:
        records: The number of records.
        measured_by: The jobs that measured them.
        used_by: The jobs whose artifacts were compiled with them.
        shown_by: The jobs of whose tasks they were the best: `best_cost_sec` is that of what is left, `best_latency_sec` still the old.
    """

    records: int
    measured_by: tuple[str, ...]
    used_by: tuple[str, ...]
    shown_by: tuple[str, ...]


class Purges(Repository):
    """Removes records."""

    def purge_device(
        self, device_id: str, *, certificate_sha256: str | None = None, ticket_jti: str | None = None
    ) -> Purged:
        """Delete the records that a device measured: all of them and its peak, or those of a certificate or ticket of its alone.

        Findings of compiles go, too, all of them: they do not say which device they were made on, and are found out again.
        """
        origin = {"certificate_sha256": certificate_sha256, "ticket_jti": ticket_jti}
        purged = self._purge(RecordRow.device_id == device_id, *equal(_RECORDS.c, **origin))
        self._run(delete(table_of(FindingRow)))
        if not any(origin.values()):
            self._run(delete(table_of(DevicePeakRow)).where(DevicePeakRow.device_id == device_id))
        return purged

    def purge_imports(self, owner: str) -> Purged:
        """Delete the records that an owner's keys imported."""
        return self._purge(RecordRow.owner == owner)

    def _purge(self, *where: ColumnElement[bool]) -> Purged:
        """Delete records. A config whose confirmation goes counts by its other records again."""
        theirs = select(RecordRow.id).where(*where)
        rows = self._run(
            select(RecordRow.id, RecordRow.job_id, RecordRow.confirmed, RecordRow.space_key, RecordRow.config)
            .add_columns(RecordRow.cost_sec, *(_RECORDS.c[name] for name in KEY))
            .where(*where)
        ).all()
        ids = {row.id for row in rows}
        used_by = sorted(job_id for job_id, used in self._used_records() if not used.isdisjoint(ids))
        self._run(delete(table_of(SourceRow)).where(SourceRow.record_id.in_(theirs)))
        self._run(update(table_of(TrialRow)).where(TrialRow.record_id.in_(theirs)).values(record_id=None))
        self._run(delete(_RECORDS).where(*where))
        unconfirmed: dict[tuple[str, ...], set[tuple[str, str]]] = {}
        for row in rows:
            if row.confirmed:
                key = tuple(getattr(row, name) for name in KEY)
                unconfirmed.setdefault(key, set()).add(config_key(row.space_key, row.config))
        for key, configs in unconfirmed.items():
            self._let_stand(key, configs)
        costs: dict[_Platform, dict[str, set[float]]] = {}
        for row in rows:
            if row.cost_sec is not None:
                platform = (row.target_key, row.device_model, row.toolchain)
                costs.setdefault(platform, {}).setdefault(row.workload_key, set()).add(row.cost_sec)
        shown_by = {
            job_id for platform in costs for job_id in self._show_what_is_left(platform, costs[platform])
        }
        measured_by = sorted({row.job_id for row in rows if row.job_id is not None})
        return Purged(
            records=len(rows),
            measured_by=tuple(measured_by),
            used_by=tuple(used_by),
            shown_by=tuple(sorted(shown_by)),
        )

    def _show_what_is_left(self, platform: _Platform, costs: Mapping[str, set[float]]) -> set[str]:
        """Give tasks whose best cost is one of these, by workload key, the best that is left; return their jobs."""
        target_key, device_model, toolchain = platform
        tasks = self._run(
            select(JobTaskRow.job_id, JobTaskRow.position, JobTaskRow.workload_key, JobTaskRow.best_cost_sec)
            .join(table_of(JobRow), JobRow.id == JobTaskRow.job_id)
            .where(
                JobTaskRow.workload_key.in_(select(self._texts(costs, "purged").c.value)),
                JobTaskRow.toolchain == toolchain,
                JobRow.target_key == target_key,
            )
        ).all()
        best = Records(self._connection).best_costs(
            costs.keys(), target_key=target_key, device_model=device_model, toolchain=toolchain
        )
        shown_by = set()
        for task in tasks:
            if task.best_cost_sec in costs[task.workload_key]:
                where = (JobTaskRow.job_id == task.job_id, JobTaskRow.position == task.position)
                left = best.get(task.workload_key)
                self._run(update(table_of(JobTaskRow)).where(*where).values(best_cost_sec=left))
                shown_by.add(task.job_id)
        return shown_by

    def _used_records(self) -> list[tuple[str, set[str]]]:
        used = []
        for job_id, report in self._run(select(ArtifactRow.job_id, ArtifactRow.report)):
            facts = report.get(_FARM) or {}
            records = (facts.get(_USED) or {}).values()
            used.append((job_id, {record["record_id"] for record in records}))
        return used

    def _let_stand(self, key: tuple[str, ...], configs: set[tuple[str, str]]) -> None:
        """Of these configs, let the newest confirming record stand, or if there is none, all records."""
        rows = self._run(
            select(RecordRow.id, RecordRow.space_key, RecordRow.config, RecordRow.confirmed)
            .where(*(_RECORDS.c[name] == value for name, value in zip(KEY, key, strict=True)))
            .order_by(RecordRow.id)
        ).all()
        for config in configs:
            left = [row for row in rows if config_key(row.space_key, row.config) == config]
            confirming = [row.id for row in left if row.confirmed]
            for record_id in confirming[-1:] or [row.id for row in left]:
                self._run(update(_RECORDS).where(RecordRow.id == record_id).values(superseded=False))
