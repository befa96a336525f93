"""Queries behind the dashboard's lists of jobs, models and devices."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

from sqlalchemy import ColumnElement, Select, Text, cast, func, or_, select

from tunefarm_db.repositories.base import Repository, checked_limit
from tunefarm_db.repositories.devices.devices import shown_state
from tunefarm_db.repositories.selection import (
    JOBS_AND_MODELS,
    ORDERS,
    JobFilters,
    JobOrder,
    conditions,
)
from tunefarm_db.states.job import OPEN_STATES, JobState
from tunefarm_db.tables import (
    ArtifactRow,
    DeviceRow,
    EventRow,
    JobRow,
    JobTaskRow,
    ModelRow,
    StepRow,
    table_of,
)
from tunefarm_db.values import DeviceState, Event, Job, Json, ModelState, StepKind

_JOBS = table_of(JobRow)
_EVENTS = table_of(EventRow)
OTHER_SHAPES = "other-shapes"
"""The phase of a compile that builds code for all sizes; its seconds are under this name in `compile_times`."""
_NEWEST = 20
_OF_LATENCY = ("round", "confirmed", "network-timed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job, with its model's name."""

    job: Job
    model_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHead:
    """A text that changes whenever the job changes."""

    id: str
    state: JobState
    event_seq: int
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHead:
    """A model's state, for a page of many."""

    id: str
    state: ModelState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHead:
    """A text that changes whenever the device changes; heartbeats do not count."""

    id: str
    state: DeviceState
    reason: str
    ready: bool
    held: bool
    fence: int
    calibrate_at: float | None


class CompileTime(NamedTuple):
    """How long a compile took.

    Attributes:
        sec: Seconds without those of `optional_sec`.
        kernels: The number of the job's kernels.
        optional_sec: Seconds of what not every compile has: of each other runtime that was timed, by its name, and under
            `OTHER_SHAPES` of the code for all sizes where it was built.
    """

    sec: float
    kernels: int
    optional_sec: dict[str, float]


class Overview(Repository):
    """Lists for the pages: one query each, with only the columns that the pages show."""

    def jobs(
        self,
        *,
        order: JobOrder = JobOrder.NEWEST,
        limit: int = 25,
        offset: int = 0,
        **filters: Unpack[JobFilters],
    ) -> tuple[tuple[ListedJob, ...], int]:
        """Return a part of the jobs that pass the filters, and the number of all that do.

        Args:
            order: The order.
            limit: Most to return.
            offset: Number of jobs to skip.
            **filters: What they have.
        """
        where = conditions(filters)
        query: Select[Any] = (
            select(_JOBS)
            .select_from(JOBS_AND_MODELS)
            .where(*where)
            .order_by(*ORDERS[order].terms())
            .limit(checked_limit(limit))
            .offset(offset)
        )
        total = self._run(select(func.count()).select_from(JOBS_AND_MODELS).where(*where)).scalar_one()
        jobs = self._all(Job, query)
        named = select(ModelRow.id, ModelRow.name).where(ModelRow.id.in_({job.model_id for job in jobs}))
        names = {row[0]: row[1] for row in self._run(named)}
        return tuple(ListedJob(job=job, model_name=names[job.model_id]) for job in jobs), total

    def tags(self) -> tuple[str, ...]:
        """Return every tag that a job has, in order."""
        return self._tags(_JOBS.c.tags)

    def model_tags(self) -> tuple[str, ...]:
        """Return every tag that a model has, in order."""
        return self._tags(table_of(ModelRow).c.tags)

    def _tags(self, column: ColumnElement[Any]) -> tuple[str, ...]:
        text = cast(column, Text)
        lists = self._run(select(text).where(text != "[]").distinct()).scalars()
        return tuple(sorted({tag for tags in lists for tag in json.loads(tags)}))

    def pools(self) -> tuple[str, ...]:
        """Return every pool that a job used."""
        return tuple(self._run(select(JobRow.device_key).distinct().order_by(JobRow.device_key)).scalars())

    def count_jobs(self, model_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of jobs of each model; models without jobs are left out."""
        query = (
            select(JobRow.model_id, func.count())
            .where(JobRow.model_id.in_(list(model_ids)))
            .group_by(JobRow.model_id)
        )
        return {row[0]: row[1] for row in self._run(query)}

    def search_rate(self, device_key: str) -> float | None:
        """Return the trials per second of the pool's newest jobs; None if no job has searched yet."""
        newest = (
            select(JobRow.trials, JobRow.tuned_sec)
            .where(JobRow.device_key == device_key, JobRow.trials > 0, JobRow.tuned_sec > 0)
            .order_by(JobRow.id.desc())
            .limit(_NEWEST)
            .subquery()
        )
        trials, sec = self._run(select(func.sum(newest.c.trials), func.sum(newest.c.tuned_sec))).one()
        return None if not sec else float(trials) / float(sec)

    def reports(self, job_ids: Sequence[str]) -> dict[str, Json]:
        """Return the reports of the jobs that have one."""
        query = select(ArtifactRow.job_id, ArtifactRow.report).where(ArtifactRow.job_id.in_(list(job_ids)))
        return {row[0]: row[1] for row in self._run(query)}

    def compile_times(self, job: Job, *, same_model: bool, limit: int) -> list[CompileTime]:
        """Return how long compiles took that followed a search on such devices, the newest first.

        Args:
            job: For its pool and target.
            same_model: Only compiles of its model; else only those of others.
            limit: Number of compiles at most.
        """
        tasks = select(func.count()).where(JobTaskRow.job_id == JobRow.id).scalar_subquery()
        query = (
            select(
                ArtifactRow.report["phases_sec"],
                tasks,
                ArtifactRow.report["baselines_sec"],
                ArtifactRow.report["other_shapes"],
            )
            .join(JobRow, JobRow.id == ArtifactRow.job_id)
            .where(
                JobRow.device_key == job.device_key,
                JobRow.target_key == job.target_key,
                JobRow.trials > 0,
                JobRow.model_id == job.model_id if same_model else JobRow.model_id != job.model_id,
            )
            .order_by(JobRow.id.desc())
            .limit(limit)
        )
        times = []
        for phases, count, baselines, other_shapes in self._run(query):
            if phases:
                sec = sum(phases.values()) - sum((baselines or {}).values()) - phases.get(OTHER_SHAPES, 0.0)
                optional = dict(baselines or {})
                if OTHER_SHAPES in phases and (other_shapes or {}).get("entry"):
                    optional[OTHER_SHAPES] = phases[OTHER_SHAPES]
                times.append(CompileTime(max(float(sec), 0.0), count, optional))
        return times

    def earlier_report(self, job: Job) -> Json | None:
        """Return the newest report of an earlier job of the same model, target and pool."""
        query = (
            select(ArtifactRow.report)
            .join(JobRow, JobRow.id == ArtifactRow.job_id)
            .where(
                JobRow.model_id == job.model_id,
                JobRow.target_key == job.target_key,
                JobRow.device_key == job.device_key,
                JobRow.id < job.id,
            )
            .order_by(JobRow.id.desc())
            .limit(1)
        )
        report: Json | None = self._run(query).scalar_one_or_none()
        return report

    def jobs_of_steps(self, step_ids: Sequence[str]) -> dict[str, str]:
        """Return the jobs of these steps, by step."""
        query = select(StepRow.id, StepRow.job_id).where(
            StepRow.id.in_(list(step_ids)), StepRow.job_id.is_not(None)
        )
        return {row[0]: row[1] for row in self._run(query)}

    def job_heads(self, also: Collection[str] = ()) -> tuple[JobHead, ...]:
        """Return the heads of the jobs that are open, of the newest ones, and of `also`."""
        newest = select(JobRow.id).order_by(JobRow.id.desc()).limit(_NEWEST).subquery()
        query = select(JobRow.id, JobRow.state, JobRow.event_seq, JobRow.updated_at).where(
            or_(
                JobRow.state.in_(sorted(OPEN_STATES)),
                JobRow.id.in_(select(newest.c.id)),
                JobRow.id.in_(list(also)),
            )
        )
        return self._all(JobHead, query)

    def model_heads(self) -> tuple[ModelHead, ...]:
        """Return the heads of the models that are being imported, and of the newest ones."""
        newest = select(ModelRow.id).order_by(ModelRow.id.desc()).limit(_NEWEST).subquery()
        wanted = or_(ModelRow.state == ModelState.IMPORTING, ModelRow.id.in_(select(newest.c.id)))
        return self._all(ModelHead, select(ModelRow.id, ModelRow.state).where(wanted))

    def device_heads(self) -> tuple[DeviceHead, ...]:
        """Return the heads of all devices that were not removed."""
        columns = (
            DeviceRow.id,
            shown_state().label("state"),
            DeviceRow.reason,
            DeviceRow.ready,
            DeviceRow.held,
            DeviceRow.fence,
            DeviceRow.calibrate_at,
        )
        query = select(*columns).where(DeviceRow.state != DeviceState.REMOVED).order_by(DeviceRow.id)
        return self._all(DeviceHead, query)

    def curve(self, job_id: str, after: int = 0) -> list[tuple[int, float, Json]]:
        """Return (seq, created_at, data) of the events above `after` that report the job's latency, in order."""
        query = (
            select(EventRow.seq, EventRow.created_at, EventRow.data)
            .where(EventRow.job_id == job_id, EventRow.seq > after, EventRow.kind.in_(_OF_LATENCY))
            .order_by(EventRow.seq)
        )
        return [(row[0], row[1], row[2]) for row in self._run(query)]

    def milestones(self, job_id: str) -> tuple[Event, ...]:
        """Return the events at which the job's phases begin and end, in order."""
        kinds = ["queued", "phase", "paused", "resumed", "retried", "finished"]
        query = select(_EVENTS).where(EventRow.job_id == job_id, EventRow.kind.in_(kinds))
        return self._all(Event, query.order_by(EventRow.seq))

    def newest_events(
        self, job_id: str, *, before: int | None = None, rounds: bool = True, limit: int = 50
    ) -> tuple[Event, ...]:
        """Return the job's newest events below the number `before`, newest first; events of rounds only if `rounds`."""
        query = select(_EVENTS).where(EventRow.job_id == job_id)
        if before is not None:
            query = query.where(EventRow.seq < before)
        if not rounds:
            query = query.where(EventRow.kind != "round")
        return self._all(Event, query.order_by(EventRow.seq.desc()).limit(checked_limit(limit)))

    def import_times(self, model_id: str) -> tuple[float, float | None] | None:
        """Return the times at which the model's import was requested and ended; None if no longer known."""
        query = (
            select(StepRow.created_at, StepRow.finished_at)
            .where(StepRow.kind == StepKind.IMPORT, StepRow.subject_id == model_id)
            .order_by(StepRow.round.desc())
            .limit(1)
        )
        row = self._run(query).first()
        return None if row is None else (row[0], row[1])
