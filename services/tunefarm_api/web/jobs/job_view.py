"""A job as the pages show it: figures worked out from its row, its tasks and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_app.storage.rows import grouped
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, JobTask
from tunefarm_text.quantities import duration, plural
from tunefarm_tuning.search.task_groups import latency_sec

ACTIVE = frozenset({JobState.QUEUED, JobState.EXTRACTING, JobState.TUNING, JobState.COMPILING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """How much faster, and than what."""

    ratio: float
    than: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How many seconds of searching are left: from the soonest to the latest."""

    soonest_sec: float
    latest_sec: float

    @property
    def is_range(self) -> bool:
        return self.latest_sec > 1.15 * self.soonest_sec + 2


def share_done(job: Job) -> float | None:
    """Return how much of the search is done: of the limit that is nearest; None where nobody knows."""
    if job.state in (JobState.SUCCEEDED, JobState.COMPILING) or job.stop_reason is not None:
        return 1.0
    shares = []
    if limit := job.budget.get("trials"):
        shares.append(job.trials / limit)
    if limit := job.budget.get("wall_sec"):
        shares.append(job.tuned_sec / limit)
    return min(max(shares), 1.0) if shares else None


_UNKNOWN_PACE = (0.7, 1.5)
"""How far the pace to come may lie from the mean so far, as long as too little was measured to tell."""
_FEW_RATES = 2


def time_left(job: Job, rates: Sequence[float] | None = None) -> Left | None:
    """Return how long the search goes on; None where no limit of time or trials says so.

    Args:
        job: The job.
        rates: Trials per second, measured over stretches of the search: they make the range. Only the mean is told where
            it is None.
    """
    if job.state is not JobState.TUNING or job.stop_reason is not None:
        return None
    soonest: list[float] = []
    latest: list[float] = []
    if limit := job.budget.get("wall_sec"):
        soonest.append(max(limit - job.tuned_sec, 0.0))
        latest.append(soonest[-1])
    if (limit := job.budget.get("trials")) and job.trials and job.tuned_sec:
        left = max(limit - job.trials, 0)
        mean = job.trials / job.tuned_sec
        paces = [mean, *(rate for rate in rates or () if rate > 0)]
        if rates is not None and len(paces) <= _FEW_RATES:
            paces += [share * mean for share in _UNKNOWN_PACE]
        soonest.append(left / max(paces))
        latest.append(left / min(paces))
    return Left(soonest_sec=min(soonest), latest_sec=min(latest)) if soonest else None


def progress_words(job: Job) -> str:
    """Return how far the search is, held against its limits: ``"48 of 60 trials, 28 s of 30 s"``."""
    trials, wall_sec = job.budget.get("trials"), job.budget.get("wall_sec")
    words = [
        f"{job.trials:,} of {plural(trials, 'trial')}" if trials else plural(job.trials, "trial"),
        f"{duration(job.tuned_sec)} of {duration(wall_sec)}" if wall_sec else duration(job.tuned_sec),
    ]
    return ", ".join(words if trials or not wall_sec else words[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How fast the network is: the artifact as it was measured, or else the sum of the kernels' best times."""

    sec: float | None
    is_measured: bool


def latency_of(job: Job, report: Mapping[str, Any] | None) -> Latency:
    """Return the best that is known of how fast the job's network is."""
    tuned = ((report or {}).get("latency") or {}).get("tuned") or {}
    median_sec = tuned.get("median_sec")
    if isinstance(median_sec, int | float):
        return Latency(sec=float(median_sec), is_measured=True)
    return Latency(sec=job.best_latency_sec, is_measured=False)


def measured_speedup(report: Mapping[str, Any] | None) -> Speedup | None:
    """Return what the finished artifact was measured to be faster than the untuned network."""
    ratio = ((report or {}).get("latency") or {}).get("speedup_over_untuned")
    return None if not isinstance(ratio, int | float) else Speedup(ratio=float(ratio), than="untuned")


def speedup_so_far(tasks: Sequence[JobTask]) -> Speedup | None:
    """Return how much faster the kernels are than after each one's first round; None unless all have one."""
    if any(first_cost_sec(task) is None for task in tasks):
        return None
    first = latency_sec([grouped(task, first_cost_sec(task)) for task in tasks])
    best = latency_sec([grouped(task, task.best_cost_sec) for task in tasks])
    return Speedup(ratio=first / best, than="first round") if first and best else None


def first_cost_sec(task: JobTask) -> float | None:
    """Return the best cost after the first round that had one."""
    return next((cost for _, cost in task.history if cost is not None), None)
