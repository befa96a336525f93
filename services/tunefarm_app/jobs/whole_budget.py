"""The budget of a whole job: what its search gets of it, after the import and before the compile.

A job's `job_sec` counts the import of its model (if the job is the first to use it), the extraction, the search and the compile, not
waiting for a worker or a device. When the extraction ends, what is left for the search becomes the job's `wall_sec`: the rest of the
farm knows that limit alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from tunefarm_app.storage.rows import EXPECTED, PREPARED
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job
from tunefarm_tuning.search.budget import Budget

_SAME_MODEL = 3
_OTHER_MODELS = 20
_FIXED_SEC = 10.0
_PER_KERNEL_SEC = 2.5
"""Where nothing was measured yet: a first compile of ResNet-18 (25 kernels) takes 52 to 79 s on two cores (Zen 4), with a goal."""
_LEAST_SHARE = 0.15
_SPARE_SHARE = 0.04
_IMPORTED_LATELY_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBudget(Budget):
    """Limits of a job: those of its search, and of the whole.

    Attributes:
        job_sec: Seconds of the whole job; see this module.
    """

    job_sec: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values; without `job_sec` as older releases wrote them."""
        data = Budget.to_json(self)
        if self.job_sec is None:
            del data["job_sec"]
        return data


def search_sec(job_sec: float, spent_sec: float, compile_sec: float) -> float:
    """Return the seconds of search in a job of `job_sec`: what is left, but at least 15 % of all.

    A little is kept back for the last round, which ends after its time, and for the steps' own work.

    Args:
        job_sec: Budget of the job.
        spent_sec: What import and extraction took.
        compile_sec: What the compile is expected to take.
    """
    return max(job_sec * (1.0 - _SPARE_SHARE) - spent_sec - compile_sec, _LEAST_SHARE * job_sec)


def expected_compile_sec(repos: Repositories, job: Job, kernels: int) -> float:
    """Return how long the job's compile should take, from compiles that were measured.

    The longest of the last compiles of its model counts: a search changes kernels, which then are checked and timed anew. If there is
    none, the time per kernel of other models' compiles on such devices counts; if there is none of these either, what one network took on two cores.

    Args:
        repos: The database.
        job: The job.
        kernels: The number of its kernels.
    """
    own = repos.overview.compile_times(job, same_model=True, limit=_SAME_MODEL)
    if own:
        return max(sec for sec, _ in own)
    others = repos.overview.compile_times(job, same_model=False, limit=_OTHER_MODELS)
    if others:
        return kernels * median(sec / max(tasks, 1) for sec, tasks in others)
    return _FIXED_SEC + kernels * _PER_KERNEL_SEC


def spent_before_sec(repos: Repositories, job: Job) -> float:
    """Return how long the import of the job's model took, if this job waited for it: if it is the model's first, soon after."""
    began, ended = repos.overview.import_times(job.model_id) or (0.0, None)
    if ended is None or job.created_at - ended > _IMPORTED_LATELY_SEC:
        return 0.0
    is_first = repos.overview.count_jobs([job.model_id]) == {job.model_id: 1}
    return ended - began if is_first else 0.0


def with_search_time(repos: Repositories, job: Job, *, kernels: int, extract_sec: float) -> Job:
    """Store the estimate of the job's compile, and, if the whole job has a budget, the time that is left for its search."""
    compile_sec = expected_compile_sec(repos, job, kernels)
    prepared_sec = spent_before_sec(repos, job) + extract_sec
    limits = dict(job.budget)
    if (job_sec := limits.get("job_sec")) is not None:
        left_sec = search_sec(job_sec, prepared_sec, compile_sec)
        limits["wall_sec"] = min(left_sec, limits.get("wall_sec") or left_sec)
    estimates = {EXPECTED: round(compile_sec, 1), PREPARED: round(prepared_sec, 1)}
    return repos.jobs.update(job.id, budget=limits, options={**job.options, **estimates})


def compile_goal_sec(job: Job) -> float | None:
    """Return the seconds in which the job's compile should be done, so that the whole job keeps its budget; None if it has none.

    A job that compiles what another one has so far should be done soon: that one waits for the device meanwhile.
    """
    if job.options.get("of") is not None:
        return 0.0
    job_sec = job.budget.get("job_sec")
    if job_sec is None:
        return None
    return max(float(job_sec) - float(job.options.get(PREPARED, 0.0)) - job.tuned_sec, 0.0)


def changed_limits(job: Job, changes: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """Return changes of a job's limits, with what they come to for its search once that has begun.

    A search whose own limit of time is removed keeps what the whole job leaves it.
    """
    before = job.budget.get("job_sec")
    job_sec = changes.get("job_sec", before)
    is_about_time = job_sec != before or ("wall_sec" in changes and job_sec is not None)
    if EXPECTED not in job.options or not is_about_time or changes.get("wall_sec") is not None:
        return changes
    if job_sec is None:
        return {**changes, "wall_sec": None}
    return {**changes, "wall_sec": search_sec(job_sec, job.options[PREPARED], job.options[EXPECTED])}
