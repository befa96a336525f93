"""The options of a job, read from its row; members that older releases did not write have their meaning from then."""

from __future__ import annotations

from tunefarm_db.values import Job
from tunefarm_tuning.workload.precision import Precision, parse_precision


def precision_of(job: Job) -> Precision:
    """Return how a job stores weights; jobs of old releases keep the model's precision."""
    return parse_precision(job.options.get("precision"))


def max_error_of(job: Job) -> float | None:
    """Return the largest error of the outputs that a job asks for; None if it asks for none."""
    return job.options.get("max_error")


def wants_other_shapes(job: Job) -> bool:
    """Return whether a job's artifact gets code for shapes that it was not tuned for; in old releases each did."""
    return job.options.get("other_shapes") is not False


def baselines_of(job: Job) -> tuple[str, ...]:
    """Return the other runtimes that a job's artifact is timed beside, besides ONNX Runtime."""
    return tuple(job.options.get("baselines") or ())


EXPECTED = "expected_compile_sec"
"""The member of a job's `options` with the estimate of its compile."""
PREPARED = "prepared_sec"
"""The member of a job's `options` with the seconds of its import and extraction."""
OWN_LIMIT = "own_wall_sec"
"""The member of a job's `options` with the user's own limit of its search, beside a budget of the whole job."""


def own_wall_sec(job: Job) -> float | None:
    """Return the user's own limit of a job's search; with a budget of the whole job, `wall_sec` may be what that leaves."""
    is_derived = job.budget.get("job_sec") is not None and EXPECTED in job.options
    limit: float | None = job.options.get(OWN_LIMIT) if is_derived else job.budget.get("wall_sec")
    return limit


def searches(job: Job) -> bool:
    """Return whether a job searches; one that does not is compiled from what is on record."""
    return job.options.get("search") is not False
