"""Queries behind the dashboard's pages of a task and of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Text, cast, or_, select, tuple_

from tunefarm_db.repositories.base import Repository, checked_limit, equal
from tunefarm_db.repositories.records.records import KEY
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """The fields of a failed trial that a page shows."""

    outcome: str
    message: str
    round: int
    config_key: str
    measured_at: float


_FAILED = (TrialRow.outcome, TrialRow.message, TrialRow.round, TrialRow.config_key, TrialRow.measured_at)
_KNOWN = (WorkloadRow.key, WorkloadRow.toolchain, WorkloadRow.name, WorkloadRow.flops, WorkloadRow.args)


class Searches(Repository):
    """The course of a job's searches, from its trials."""

    def ends(self, job_id: str, position: int) -> list[tuple[str, float | None]]:
        """Return outcome and cost of every trial of a task, in order."""
        query = (
            select(TrialRow.outcome, TrialRow.cost_sec)
            .where(TrialRow.job_id == job_id, TrialRow.position == position)
            .order_by(TrialRow.round, TrialRow.ordinal)
        )
        return [(row[0], row[1]) for row in self._run(query)]

    def failures(self, job_id: str, position: int, *, limit: int = 5000) -> tuple[FailedTrial, ...]:
        """Return the task's trials that failed, the newest first."""
        query = select(*_FAILED).where(
            TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.outcome != _OK
        )
        return self._all(
            FailedTrial, query.order_by(TrialRow.round.desc(), TrialRow.ordinal.desc()).limit(limit)
        )

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
        return {(workload.key, workload.toolchain): workload for workload in self._all(KnownWorkload, query)}

    def workloads_like(self, text: str, *, shape: Sequence[int] = (), limit: int) -> tuple[str, ...]:
        """Return the keys of workloads whose name contains the text, or whose key begins with it.

        Args:
            text: Empty for any.
            shape: Only those with an argument that has these dimensions next to each other.
            limit: At most so many.
        """
        checked_limit(limit)
        query = select(WorkloadRow.key, WorkloadRow.args).order_by(WorkloadRow.key)
        if text:
            name_or_key = or_(
                WorkloadRow.name.icontains(text, autoescape=True),
                WorkloadRow.key.startswith(text, autoescape=True),
            )
            query = query.where(name_or_key)
        if shape:
            # A first filter on the text of the JSON: it lets "156, 562" through for "56, 56".
            query = query.where(cast(WorkloadRow.args, Text).contains(", ".join(map(str, shape))))
        keys: dict[str, None] = {}
        for key, args in self._run(query):
            if not shape or any(_has(arg.get("shape", ()), shape) for arg in args):
                keys[key] = None
                if len(keys) == limit:
                    break
        return tuple(keys)

    def targets(self) -> tuple[str, ...]:
        """Return the targets of all jobs."""
        return tuple(self._run(select(JobRow.target_key).distinct().order_by(JobRow.target_key)).scalars())

    def device_models(self) -> tuple[str, ...]:
        """Return the models of all devices that ever joined."""
        query = select(DeviceRow.device_model).distinct().order_by(DeviceRow.device_model)
        return tuple(self._run(query).scalars())

    def best_over_time(self, record: Record, *, limit: int = 5000) -> list[tuple[float, float]]:
        """Return (measured_at, cost_sec) of each improvement for a record's key, oldest first.

        Args:
            record: Its workload, target, device model and toolchain are the key.
            limit: How many of the newest working records are looked at.
        """
        query = (
            select(RecordRow.measured_at, RecordRow.cost_sec)
            .where(
                *equal(_RECORDS.c, **{name: getattr(record, name) for name in KEY}),
                RecordRow.cost_sec.is_not(None),
            )
            .order_by(RecordRow.id.desc())
            .limit(limit)
        )
        improvements: list[tuple[float, float]] = []
        for at, cost in reversed(self._run(query).all()):
            if not improvements or cost < improvements[-1][1]:
                improvements.append((at, cost))
        return improvements


def _has(dims: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether these dimensions are in a shape, next to each other."""
    starts = range(len(dims) - len(wanted) + 1)
    return any(list(dims[start : start + len(wanted)]) == list(wanted) for start in starts)
