"""What the dashboard shows of one task's trials, and of what is on record: queries that only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select, tuple_

from tunefarm_db.repositories.base import Repository, checked_limit
from tunefarm_db.tables import DeviceRow, JobRow, RecordRow, TrialRow, WorkloadRow, table_of
from tunefarm_db.values import Json, Record, Trial

_TRIALS = table_of(TrialRow)
_RECORDS = table_of(RecordRow)
_OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorkload:
    """A workload without its code."""

    key: str
    toolchain: str
    name: str
    flops: float
    args: list[Json]


_KNOWN = (WorkloadRow.key, WorkloadRow.toolchain, WorkloadRow.name, WorkloadRow.flops, WorkloadRow.args)


class Searches(Repository):
    def ends(self, job_id: str, position: int) -> list[tuple[str, float | None]]:
        """Return outcome and cost of every trial of a task, in order."""
        query = (
            select(TrialRow.outcome, TrialRow.cost_sec)
            .where(TrialRow.job_id == job_id, TrialRow.position == position)
            .order_by(TrialRow.round, TrialRow.ordinal)
        )
        return [(row[0], row[1]) for row in self._run(query)]

    def messages(self, job_id: str, position: int, *, limit: int = 12) -> list[tuple[str, str, int]]:
        """Return what the task's failures said: outcome, message and how often, the most frequent first."""
        count = func.count().label("count")
        query = (
            select(TrialRow.outcome, TrialRow.message, count)
            .where(TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.outcome != _OK)
            .group_by(TrialRow.outcome, TrialRow.message)
            .order_by(count.desc(), TrialRow.outcome, TrialRow.message)
            .limit(limit)
        )
        return [(row[0], row[1], row[2]) for row in self._run(query)]

    def fastest(self, job_id: str, position: int) -> Trial | None:
        """Return the task's fastest trial in this job."""
        query = select(_TRIALS).where(
            TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.cost_sec.is_not(None)
        )
        return self._first(Trial, query.order_by(TrialRow.cost_sec, TrialRow.id).limit(1))

    def record(self, record_id: str) -> Record | None:
        return self._first(Record, select(_RECORDS).where(RecordRow.id == record_id))

    def known(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KnownWorkload]:
        """Return these workloads, by key and toolchain."""
        query = select(*_KNOWN).where(tuple_(WorkloadRow.key, WorkloadRow.toolchain).in_(list(pairs)))
        return {(one.key, one.toolchain): one for one in self._all(KnownWorkload, query)}

    def workloads_like(self, text: str, *, limit: int) -> tuple[str, ...]:
        """Return the keys of workloads whose name contains the text, or whose key begins with it."""
        wanted = or_(
            WorkloadRow.name.icontains(text, autoescape=True),
            WorkloadRow.key.startswith(text, autoescape=True),
        )
        query = select(WorkloadRow.key).where(wanted).distinct().order_by(WorkloadRow.key)
        return tuple(self._run(query.limit(checked_limit(limit))).scalars())

    def targets(self) -> tuple[str, ...]:
        """Return every target that a job was for."""
        return tuple(self._run(select(JobRow.target_key).distinct().order_by(JobRow.target_key)).scalars())

    def device_models(self) -> tuple[str, ...]:
        """Return every kind of device that ever joined."""
        query = select(DeviceRow.device_model).distinct().order_by(DeviceRow.device_model)
        return tuple(self._run(query).scalars())

    def best_over_time(self, record: Record, *, limit: int = 5000) -> list[tuple[float, float]]:
        """Return when the best of a record's place fell, and to what, oldest first.

        Args:
            record: Its workload, target, device model and toolchain say what is meant.
            limit: Of so many of the newest working records.
        """
        query = (
            select(RecordRow.measured_at, RecordRow.cost_sec)
            .where(
                RecordRow.workload_key == record.workload_key,
                RecordRow.target_key == record.target_key,
                RecordRow.device_model == record.device_model,
                RecordRow.toolchain == record.toolchain,
                RecordRow.cost_sec.is_not(None),
            )
            .order_by(RecordRow.id.desc())
            .limit(limit)
        )
        falls: list[tuple[float, float]] = []
        for at, cost in reversed(self._run(query).all()):
            if not falls or cost < falls[-1][1]:
                falls.append((at, cost))
        return falls
