"""Jobs side by side: their results, their curves over the seconds of search, and their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.networks import networks_of
from tunefarm_app.report.numbers import kernel_numbers, latency_of, speedups_of
from tunefarm_app.report.sections import ReportNetwork, ReportRatio, ReportSection
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, JobTask
from tunefarm_text import quantities
from tunefarm_text.job_terms import COMPARED_TIMES
from tunefarm_tuning.core.errors import InvalidInputError

LEAST, MOST = 2, 6
MOST_POINTS = 200


class ComparedJob(ReportSection):
    """One of the jobs."""

    id: str = Field(description="Identifier of the job.")
    model_id: str = Field(description="The tuned model.")
    model_name: str = Field(description="Name of the model.")
    state: JobState = Field(description="State of the job.")
    device_key: str = Field(description="Device pool.")
    target_key: str = Field(description="Target, in canonical form.")
    tuner: str = Field(description="Tuner.")
    precision: str = Field(description="Format of stored weights.")
    libraries: list[str] = Field(description="Libraries that may compute kernels, by TVM's names of them.")
    trials: int = Field(description="Number of trials.")
    tuned_sec: float = Field(description="Seconds of search.")
    created_at: float = Field(description="Creation time, Unix seconds.")
    latency_sec: float | None = Field(
        description="Measured latency of the network: the artifact's, or before there is one, the least of the search's timings; before "
        "those, the sum of the kernels' best times; null if unknown."
    )
    is_measured: bool = Field(description="Whether the latency is the network's, and not such a sum.")
    is_disturbed: bool = Field(
        description="Whether other work disturbed the artifact's timing so much that no ratio is known within a factor of three."
    )
    ratios: dict[str, ReportRatio] = Field(
        description="How many times as fast the artifact is as other networks, by their names."
    )
    artifact_bytes: int | None = Field(description="Size of the artifact; null if there is none.")
    networks: list[ReportNetwork] = Field(
        description="The network as the search timed it on the way, with its kernels so far, oldest first."
    )
    curve: list[tuple[float, float]] = Field(
        description="Seconds of search and the sum of the kernels' best times in seconds, where it changed: an estimate of the latency."
    )


class ComparedKernel(ReportSection):
    """A kernel that at least one of the jobs tunes; values in the order of the jobs, null where a job does not tune it."""

    workload_key: str = Field(description="Key of the workload.")
    name: str = Field(description="Name of the kernel.")
    weights: list[int | None] = Field(description="Calls per inference.")
    best_sec: list[float | None] = Field(description=f"In seconds. {COMPARED_TIMES}")
    trials: list[int | None] = Field(description="Number of trials.")

    @property
    def best(self) -> int | None:
        """The position of the job whose call is fastest; None unless two jobs have a time, or if two are equally fast."""
        known = sorted((sec, position) for position, sec in enumerate(self.best_sec) if sec is not None)
        return known[0][1] if len(known) > 1 and known[0][0] < known[1][0] else None

    @property
    def is_shared(self) -> bool:
        """Whether at least two of the jobs have it: others cannot be compared."""
        return sum(weight is not None for weight in self.weights) > 1

    @property
    def apart(self) -> float | None:
        """The most that an inference gains by this kernel of one job in place of another's, in seconds; None unless two have a time."""
        known = [
            sec * weight
            for sec, weight in zip(self.best_sec, self.weights, strict=True)
            if sec is not None and weight is not None
        ]
        return max(known) - min(known) if len(known) > 1 else None


class JobComparison(ReportSection):
    """Jobs side by side."""

    jobs: list[ComparedJob] = Field(description="The jobs, in the order asked for.")
    kernels: list[ComparedKernel] = Field(
        description="The kernels of all of them, the largest differences first."
    )


def compare_jobs(repos: Repositories, job_ids: Sequence[str]) -> JobComparison:
    """Return jobs side by side.

    Raises:
        NotFoundError: ``job-not-found``.
        InvalidInputError: ``bad-comparison``, unless there are two to six different jobs.
    """
    if not LEAST <= len(job_ids) <= MOST or len(set(job_ids)) < len(job_ids):
        asked = quantities.plural(len(job_ids), "job")
        why = "a job is named twice" if len(set(job_ids)) < len(job_ids) else f"this names {asked}"
        raise InvalidInputError(
            f"{LEAST} to {MOST} different jobs can be compared, and {why}",
            code="bad-comparison",
            jobs=list(job_ids[: MOST + 1]),
        )
    jobs = [repos.jobs.get(job_id) for job_id in job_ids]
    tasks = [{task.workload_key: task for task in repos.jobs.tasks(job.id)} for job in jobs]
    timed = [_timed(repos, job, by_key) for job, by_key in zip(jobs, tasks, strict=True)]
    names = {key: task.name for by_key in tasks for key, task in by_key.items()}
    kernels = [
        _kernel(key, name, [by_key.get(key) for by_key in tasks], [secs.get(key) for secs in timed])
        for key, name in names.items()
    ]
    return JobComparison(
        jobs=[_job(repos, job) for job in jobs],
        kernels=sorted(kernels, key=lambda kernel: (not kernel.is_shared, -(kernel.apart or 0.0))),
    )


def _timed(repos: Repositories, job: Job, tasks: Mapping[str, JobTask]) -> dict[str, float | None]:
    """Return the seconds per call of each kernel in the job's artifact, by its workload."""
    artifact = repos.artifacts.for_job(job.id)
    if artifact is None:
        return {}
    numbers = kernel_numbers(list(tasks.values()), Evidence(artifact.manifest, artifact.report))
    return {key: numbers[task.position].call_sec for key, task in tasks.items()}


def _kernel(
    key: str, name: str, tasks: Sequence[JobTask | None], timed_sec: Sequence[float | None]
) -> ComparedKernel:
    return ComparedKernel(
        workload_key=key,
        name=name,
        weights=[task.weight if task else None for task in tasks],
        best_sec=[_best_sec(task, sec) if task else None for task, sec in zip(tasks, timed_sec, strict=True)],
        trials=[task.trials if task else None for task in tasks],
    )


def _best_sec(task: JobTask, timed_sec: float | None) -> float | None:
    """Return the time of a job's kernel as `COMPARED_TIMES` says; of one without, that of an earlier job's record."""
    return (task.best_cost_sec if task.trials else None) or timed_sec or task.best_cost_sec


def _job(repos: Repositories, job: Job) -> ComparedJob:
    artifact = repos.artifacts.for_job(job.id)
    latency = latency_of(job)
    return ComparedJob(
        id=job.id,
        model_id=job.model_id,
        model_name=repos.models.get(job.model_id, deleted=True).name,
        state=job.state,
        device_key=job.device_key,
        target_key=job.target_key,
        tuner=job.tuner,
        precision=str(job.options.get("precision", "as-model")),
        libraries=list(job.target.get("libs") or ()),
        trials=job.trials,
        tuned_sec=job.tuned_sec,
        created_at=job.created_at,
        latency_sec=latency.sec,
        is_measured=latency.is_measured,
        is_disturbed=latency.is_disturbed,
        ratios=speedups_of(job),
        artifact_bytes=artifact.size_bytes if artifact else None,
        networks=networks_of(repos.network_timings.of(job.id)),
        curve=_curve(repos, job.id),
    )


def _curve(repos: Repositories, job_id: str) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for _seq, _at, data in repos.overview.curve(job_id):
        latency_sec = data.get("best_latency_sec")
        if latency_sec is not None and (not points or points[-1][1] != latency_sec):
            points.append((float(data.get("tuned_sec") or 0.0), float(latency_sec)))
    step = max(1, -(-len(points) // MOST_POINTS))
    return points[::-step][::-1]
