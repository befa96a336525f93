"""The budget of a whole job: what its search gets of it, after the import and before the compile.

A job's `job_sec` counts the import of its model (if the job is the first to use it), the extraction, the search and the compile, not
waiting for a worker or a device. When the extraction ends, what is left for the search becomes the job's `wall_sec`: the rest of the
farm knows that limit alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tunefarm_app.storage.job_options import (
    EXPECTED,
    OWN_LIMIT,
    PREPARED,
    baselines_of,
    own_wall_sec,
    wants_other_shapes,
)
from tunefarm_app.storage.rows import binding_of
from tunefarm_db.repositories.farm.overview import OTHER_SHAPES, CompileTime
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json
from tunefarm_tuning.search.budget import Budget

_SAME_MODEL = 3
_OTHER_MODELS = 20
_FIXED_SEC = 14.0
_PER_KERNEL_SEC = 0.85
"""Where nothing was measured yet: the first compile of ResNet-18 (25 kernels), after a search of 9 s, takes 31 to 36 s on two cores (Zen 4), with a goal."""
_PER_BASELINE_SEC = 5.0
"""The same of another runtime beside the network: starting and opening it, and fifteen samples."""
_PER_KERNEL_OTHER_SHAPES_SEC = 0.6
"""The same of code for all sizes: PP-OCR's direction classifier (55 kernels) takes 34 s."""
_LEAST_SHARE = 0.15
_LEAST_GOAL_SEC = 0.1
"""Of a job that has spent its budget: a goal of 0 is that of the best so far."""
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


def expected_compile_sec(repos: Repositories, job: Job, kernels: int, *, other_shapes: bool = True) -> float:
    """Return how long the job's compile should take, from compiles that were measured; the runtimes that it times beside included.

    The longest of the last compiles of its model counts: a search changes kernels, which then are checked and timed anew. If there is
    none, the time per kernel of other models' compiles on such devices counts; if there is none of these either, what one network took on two cores.

    Args:
        repos: The database.
        job: The job.
        kernels: The number of its kernels.
        other_shapes: Whether to count code for all sizes, if the job wants it.
    """
    of_model = repos.overview.compile_times(job, same_model=True, limit=_SAME_MODEL)
    others = repos.overview.compile_times(job, same_model=False, limit=_OTHER_MODELS)
    beside_sec = sum(_baseline_sec(name, of_model, others) for name in baselines_of(job))
    if other_shapes and wants_other_shapes(job) and binding_of(repos.models.get(job.model_id)).shapes:
        beside_sec += _other_shapes_sec(of_model, others, kernels)
    if of_model:
        return beside_sec + max(compiled.sec for compiled in of_model)
    if others:
        return beside_sec + kernels * median(compiled.sec / max(compiled.kernels, 1) for compiled in others)
    return beside_sec + _FIXED_SEC + kernels * _PER_KERNEL_SEC


def _other_shapes_sec(of_model: Sequence[CompileTime], others: Sequence[CompileTime], kernels: int) -> float:
    """Return how long code for all sizes should take: by compiles of the model that built it, else per kernel by those of other models."""
    if known := [
        compiled.optional_sec[OTHER_SHAPES] for compiled in of_model if OTHER_SHAPES in compiled.optional_sec
    ]:
        return max(known)
    per_kernel = [
        compiled.optional_sec[OTHER_SHAPES] / max(compiled.kernels, 1)
        for compiled in others
        if OTHER_SHAPES in compiled.optional_sec
    ]
    return kernels * (median(per_kernel) if per_kernel else _PER_KERNEL_OTHER_SHAPES_SEC)


def _baseline_sec(name: str, of_model: Sequence[CompileTime], others: Sequence[CompileTime]) -> float:
    """Return how long timing another runtime should take: by compiles of the model, else by those of other models."""
    if known := [compiled.optional_sec[name] for compiled in of_model if name in compiled.optional_sec]:
        return max(known)
    known = [compiled.optional_sec[name] for compiled in others if name in compiled.optional_sec]
    return median(known) if known else _PER_BASELINE_SEC


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
    job_sec = (job.budget or {}).get("job_sec")
    if job_sec is not None:  # code for all sizes gives way where the whole job has no time for it
        least_sec = expected_compile_sec(repos, job, kernels, other_shapes=False)
        is_room = compile_sec <= (1.0 - _LEAST_SHARE) * job_sec - prepared_sec
        compile_sec = compile_sec if is_room else least_sec
    estimates = {EXPECTED: round(compile_sec, 1), PREPARED: round(prepared_sec, 1)}
    asked = {**job.budget, "wall_sec": own_wall_sec(job)} if job.budget else {}
    budget, options = settled_limits(asked, {**job.options, **estimates})
    return repos.jobs.update(job.id, budget=budget, options=options)


def settled_limits(asked: Mapping[str, Any], options: Json) -> tuple[Json, Json]:
    """Return the budget and the options of a job with the limits that its user asks for.

    Once the job has estimates, its search gets what the whole job leaves, or the user's own limit if that is smaller. The own
    limit is kept in the options, so that it counts when the whole job's budget changes, or is removed.
    """
    job_sec, own_sec = asked.get("job_sec"), asked.get("wall_sec")
    options = {name: value for name, value in options.items() if name != OWN_LIMIT}
    if job_sec is None or EXPECTED not in options:
        return dict(asked), options
    left_sec = search_sec(job_sec, options[PREPARED], options[EXPECTED])
    if own_sec is None:
        return {**asked, "wall_sec": left_sec}, options
    return {**asked, "wall_sec": min(left_sec, own_sec)}, {**options, OWN_LIMIT: own_sec}


def compile_goal_sec(job: Job) -> float | None:
    """Return the seconds in which the job's compile should be done, so that the whole job keeps its budget; None if it has none.

    A job that compiles what another one has so far should be done soon: that one waits for the device meanwhile.
    """
    if job.options.get("of") is not None:
        return 0.0
    job_sec = job.budget.get("job_sec")
    if job_sec is None:
        return None
    return max(float(job_sec) - float(job.options.get(PREPARED, 0.0)) - job.tuned_sec, _LEAST_GOAL_SEC)
