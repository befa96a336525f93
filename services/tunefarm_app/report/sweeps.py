"""Sweeps as they are shown and reported: a row for each combination, and which is the fastest of a model on a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from tunefarm_app.report.numbers import UNTUNED, best_runtime, latency_of, speedups_of
from tunefarm_app.report.page import render
from tunefarm_app.report.sections import ReportRatio, ReportSection
from tunefarm_db.states.job import OPEN_STATES
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, Page, Sweep, SweepCell
from tunefarm_text.job_terms import RUNTIMES, sweep_rule

REFUSED = "refused"
"""The state of a combination that has no job."""
_CLEARLY = 1.15
"""Two runs of one network on one machine differ by up to 15 % (decision 57)."""
RUNNING, ENDED, CANCELLED = "running", "ended", "cancelled"
"""The states of a sweep; it has ended when all of its jobs have."""


class SweepError(ReportSection):
    """Why a combination has no artifact."""

    code: str = Field(description="Problem code.")
    message: str = Field(description="The reason, for people.")


class ReportedCell(ReportSection):
    """A combination of a sweep: a model, a pool and a precision."""

    position: int = Field(description="Index in the sweep.")
    model_id: str | None = Field(description="The model; null of a file that the farm did not take.")
    model_name: str = Field(description="Name of the model, or of the file.")
    device_key: str = Field(description="Device pool; empty of a file that was not taken.")
    precision: str = Field(description="Format of stored weights; empty of a file that was not taken.")
    job_id: str | None = Field(description="Its job; null if the combination was refused.")
    state: str = Field(description="State of the job, or `refused`.")
    error: SweepError | None = Field(description="Why it was refused, or failed.")
    budget: Json = Field(description="The job's share of the budget; empty without a search.")
    trials: int = Field(description="Number of trials.")
    tuned_sec: float = Field(description="Seconds of search.")
    latency_sec: float | None = Field(
        description="Measured latency of the network: the artifact's, or before there is one, the least of the search's timings; before "
        "those, the sum of the kernels' best times; null if unknown."
    )
    is_measured: bool = Field(description="Whether the latency is the network's, and not such a sum.")
    is_disturbed: bool = Field(
        description="Whether other work disturbed the artifact's timing so much that no ratio is known within a factor of three."
    )
    over_untuned: ReportRatio | None = Field(
        description="How many times as fast as untuned; null if not timed."
    )
    over_runtime: ReportRatio | None = Field(
        description="How many times as fast as the fastest other runtime; null if none was timed."
    )
    runtime: str | None = Field(description="That runtime's name.")
    is_fastest: bool = Field(
        description="Whether its artifact is clearly the fastest of its model on its pool: by 15 %, as timings at two times can differ, "
        "and by what other work may have added to them; "
        "false if no other was measured."
    )
    finished_at: float | None = Field(description="End of the job, Unix seconds; null before.")


class SweepHead(ReportSection):
    """A sweep, without its combinations."""

    id: str = Field(description="Identifier.")
    state: str = Field(
        description="`running`; `ended` when all jobs have, however; `cancelled` if a person cancelled it before."
    )
    counts: dict[str, int] = Field(
        description="Number of combinations by state of their jobs; `refused` have none."
    )
    model_names: list[str] = Field(
        description="Names of its models, and of the files that the farm did not take, in order."
    )
    budget: Json = Field(description="Budget of the whole sweep; empty without a search.")
    tags: list[str] = Field(description="Words to find it by; its jobs have them, too.")
    note: str = Field(description="A text for people.")
    created_at: float = Field(description="Creation time, Unix seconds.")
    finished_at: float | None = Field(description="End of its last job, Unix seconds; null before.")


class SweepReport(SweepHead):
    """A sweep with a row for each of its combinations. It can be asked for at any time."""

    rule: str = Field(description="How the jobs share the budget.")
    cells: list[ReportedCell] = Field(
        description="The combinations: model by model, pool by pool, precision by precision."
    )


def sweep_report(repos: Repositories, sweep_id: str) -> SweepReport:
    """Return a sweep with all its rows.

    Raises:
        NotFoundError: ``sweep-not-found``.
    """
    sweep = repos.sweeps.get(sweep_id)
    jobs = repos.sweeps.jobs([sweep_id])
    stored = repos.sweeps.cells([sweep_id])[sweep_id]
    best = _fastest(stored, jobs)
    cells = [_cell(cell, jobs.get(cell.job_id or ""), best) for cell in stored]
    rule = sweep_rule(sweep.budget, pools=len({cell.device_key for cell in cells if cell.job_id}))
    return SweepReport(**_head(sweep, stored, jobs).model_dump(), rule=rule, cells=cells)


def sweep_page(repos: Repositories, *, cursor: str | None, limit: int) -> Page[SweepHead]:
    """Return a page of sweeps, newest first."""
    page = repos.sweeps.list(cursor=cursor, limit=limit)
    ids = [sweep.id for sweep in page.items]
    cells, jobs = repos.sweeps.cells(ids), repos.sweeps.jobs(ids)
    heads = tuple(_head(sweep, cells[sweep.id], jobs) for sweep in page.items)
    return Page(items=heads, next_cursor=page.next_cursor)


def sweep_report_page(report: SweepReport) -> str:
    """Return the report as one HTML file without scripts."""
    return render("sweep.html", report=report, runtimes=RUNTIMES)


def _head(sweep: Sweep, cells: Sequence[SweepCell], jobs: dict[str, Job]) -> SweepHead:
    submitted = [jobs[cell.job_id] for cell in cells if cell.job_id is not None]
    states = Counter(_state(jobs.get(cell.job_id or "")) for cell in cells)
    is_running = any(job.state in OPEN_STATES for job in submitted)
    state = RUNNING if is_running else CANCELLED if sweep.cancelled_at is not None else ENDED
    ends = [job.finished_at for job in submitted if job.finished_at is not None]
    return SweepHead(
        id=sweep.id,
        state=state,
        counts=dict(sorted(states.items())),
        model_names=list(dict.fromkeys(cell.model_name for cell in cells)),
        budget=sweep.budget,
        tags=sweep.tags,
        note=sweep.note,
        created_at=sweep.created_at,
        finished_at=None if is_running else max(ends, default=sweep.created_at),
    )


def _state(job: Job | None) -> str:
    return REFUSED if job is None else job.state.value


def _fastest(cells: Sequence[SweepCell], jobs: dict[str, Job]) -> set[str]:
    """Return the jobs whose artifacts are clearly the fastest of their model on their pool, where two were measured."""
    measured: dict[tuple[str | None, str], list[tuple[float, float, str]]] = {}
    for cell in cells:
        job = jobs.get(cell.job_id or "")
        # Without speed-ups it is not of an artifact, but of the network on the way.
        if job is not None and job.network_latency_sec is not None and job.speedups:
            error = _error_of(job)
            bounds = (job.network_latency_sec * error, job.network_latency_sec / error)
            measured.setdefault((cell.model_id, cell.device_key), []).append((*bounds, job.id))
    fastest = set()
    for of_model in measured.values():
        (most_sec, _, job_id), *others = sorted(of_model)
        if others and all(least_sec >= _CLEARLY * most_sec for _, least_sec, _ in others):
            fastest.add(job_id)
    return fastest


def _error_of(job: Job) -> float:
    """Return the factor by which the job's latency may be off, as far as its ratios to what was timed beside it tell.

    The widest counts: an artifact that fell back to the untuned network is exactly as fast as that, which tells nothing.
    """
    return max(
        (
            max(ratio.high / ratio.value, ratio.value / ratio.low)
            for ratio in speedups_of(job).values()
            if ratio.low and ratio.high is not None
        ),
        default=1.0,
    )


def _cell(cell: SweepCell, job: Job | None, fastest: set[str]) -> ReportedCell:
    error = cell.error if job is None else job.error
    latency = None if job is None else latency_of(job)
    speedups = {} if job is None else speedups_of(job)
    runtime = best_runtime(speedups)
    return ReportedCell(
        position=cell.position,
        model_id=cell.model_id,
        model_name=cell.model_name,
        device_key=cell.device_key,
        precision=cell.precision,
        job_id=cell.job_id,
        state=_state(job),
        error=None
        if error is None
        else SweepError(code=str(error.get("code", "internal")), message=str(error.get("message", ""))),
        budget={} if job is None else job.budget,
        trials=0 if job is None else job.trials,
        tuned_sec=0.0 if job is None else job.tuned_sec,
        latency_sec=None if latency is None else latency.sec,
        is_measured=latency is not None and latency.is_measured,
        is_disturbed=latency is not None and latency.is_disturbed,
        over_untuned=speedups.get(UNTUNED),
        over_runtime=None if runtime is None else speedups[runtime],
        runtime=runtime,
        is_fastest=job is not None and job.id in fastest,
        finished_at=None if job is None else job.finished_at,
    )
