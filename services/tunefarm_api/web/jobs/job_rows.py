"""What the page of a job reads of the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_api.web.charts.curve import Curve, Curves
from tunefarm_app.jobs.measure_again import Measuring, measuring_of
from tunefarm_app.jobs.trace import JobTrace, short_trace
from tunefarm_app.records.rooflines import job_rooflines
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import (
    Artifact,
    Draft,
    Event,
    Job,
    JobTask,
    Model,
    ModelTask,
    NetworkTiming,
    Step,
    StepKind,
)
from tunefarm_tuning.measure.roofline import Roofline

_NEIGHBOURS = 25
"""How many of the model's newest jobs are looked at for those that compiled what this one had so far."""

_curves = Curves()  # of this process; only what saves reading events twice


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """What the database has of a job, read at one moment.

    Attributes:
        artifact: None while it has none.
        draft: What it offers until then.
        so_far: Jobs that compiled what this one had so far.
        step: Its open step.
        milestones: The events at which its phases began.
        imported: When the import of its model began and ended.
        measuring: The measurements of its artifact, and whether another is under way.
        timings: The networks that its search compiled.
        first_draft: The step that compiled the first of them.
        now: The database's time.
    """

    job: Job
    model: Model
    tasks: Sequence[JobTask]
    model_tasks: Sequence[ModelTask]
    artifact: Artifact | None
    draft: Draft | None
    so_far: Sequence[Job]
    step: Step | None
    milestones: Sequence[Event]
    imported: tuple[float, float | None] | None
    rooflines: Mapping[int, Roofline]
    curve: Curve
    trace: JobTrace | None
    measuring: Measuring | None
    timings: Sequence[NetworkTiming]
    first_draft: Step | None
    now: float

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What the compiler wrote of the artifact."""
        return None if self.artifact is None else self.artifact.report


def job_rows(repos: Repositories, job_id: str) -> JobRows:
    """Read what the page of a job shows.

    Raises:
        NotFoundError: ``job-not-found``.
    """
    job = repos.jobs.get(job_id)
    tasks, model_tasks = repos.jobs.tasks(job_id), repos.models.tasks(job.model_id)
    artifact, draft = repos.artifacts.for_job(job_id), repos.drafts.of([job_id]).get(job_id)
    report = None if artifact is None else artifact.report
    return JobRows(
        job=job,
        model=repos.models.get(job.model_id, deleted=True),
        tasks=tasks,
        model_tasks=model_tasks,
        artifact=artifact,
        draft=draft,
        so_far=[
            other
            for other in repos.jobs.list(model_id=job.model_id, limit=_NEIGHBOURS).items
            if other.options.get("of") == job_id and not _is_file_of(repos, other, draft)
        ],
        step=repos.steps.open_of([job_id]).get(job_id),
        milestones=repos.overview.milestones(job_id),
        imported=repos.overview.import_times(job.model_id),
        rooflines=job_rooflines(repos, job, tasks, model_tasks, report),
        curve=curve_of(repos, job_id),
        trace=short_trace(repos, job),
        measuring=measuring_of(repos, job_id) if artifact is not None else None,
        timings=repos.network_timings.of(job_id),
        first_draft=repos.steps.find(StepKind.DRAFT, job_id),
        now=repos.now(),
    )


def _is_file_of(repos: Repositories, job: Job, draft: Draft | None) -> bool:
    """Return whether a draft, which the page offers, is the artifact of `job`."""
    if draft is None or job.state is not JobState.SUCCEEDED:
        return False
    artifact = repos.artifacts.for_job(job.id)
    return artifact is not None and artifact.sha256 == draft.sha256


def curve_of(repos: Repositories, job_id: str) -> Curve:
    """Return the curve of a job as it is now."""
    return _curves.of(repos, job_id)
