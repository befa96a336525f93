"""The progress of a job and its ETA, for the API, the pages and the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_app.storage.job_options import EXPECTED, searches
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job

_UNKNOWN_PACE = (0.7, 1.5)
"""Assumed deviation of the future pace from the mean pace, while too few rates were measured."""
_FEW_RATES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """An estimate of the remaining seconds of a job: of its search, and of the compile as far as that is known.

    Attributes:
        expected_sec: At the mean pace so far.
        soonest_sec: At the fastest pace that was measured.
        latest_sec: At the slowest.
    """

    expected_sec: float
    soonest_sec: float
    latest_sec: float

    @property
    def is_range(self) -> bool:
        """Whether `soonest_sec` and `latest_sec` differ enough to show both."""
        return self.latest_sec > 1.15 * self.soonest_sec + 2


def share_done(job: Job) -> float | None:
    """Return the share of the search that is done, by the nearest limit; None without a limit of time or trials."""
    if not searches(job):
        return None
    if job.state in (JobState.SUCCEEDED, JobState.COMPILING) or job.stop_reason is not None:
        return 1.0
    shares = []
    if limit := job.budget.get("trials"):
        shares.append(job.trials / limit)
    if limit := job.budget.get("wall_sec"):
        shares.append(job.tuned_sec / limit)
    return min(max(shares), 1.0) if shares else None


def time_left(job: Job, rates: Sequence[float] | None = None) -> TimeLeft | None:
    """Return the remaining time of the job; None if nobody knows it, or if it has no limit of time or trials.

    Of jobs of older releases, which have no estimate of their compile, it is the time of the search alone.

    Args:
        job: The job.
        rates: Trials per second, measured over stretches of the search: they make the range. Left out, all three times
            are those at the mean pace.
    """
    if job.state in (JobState.QUEUED, JobState.EXTRACTING):
        return None if (job_sec := job.budget.get("job_sec")) is None else _exactly(job_sec)
    compile_sec = job.options.get(EXPECTED)
    if job.state is JobState.COMPILING or job.stop_reason is not None:
        if job.state.is_finished or compile_sec is None:
            return None
        left_sec = _of_compile(job, compile_sec)
        return None if left_sec is None else _exactly(left_sec)
    if job.state is not JobState.TUNING:
        return None
    limits: list[TimeLeft] = []
    if wall_sec := job.budget.get("wall_sec"):
        left_sec = max(wall_sec - job.tuned_sec, 0.0)
        limits.append(_exactly(left_sec))
    if (trials := job.budget.get("trials")) and job.trials and job.tuned_sec:
        trials_left = max(trials - job.trials, 0)
        mean = job.trials / job.tuned_sec
        paces = [mean, *(rate for rate in rates or () if rate > 0)]
        if rates is not None and len(paces) <= _FEW_RATES:
            paces += [share * mean for share in _UNKNOWN_PACE]
        limits.append(
            TimeLeft(
                expected_sec=trials_left / mean,
                soonest_sec=trials_left / max(paces),
                latest_sec=trials_left / min(paces),
            )
        )
    if not limits:
        return None
    return TimeLeft(
        expected_sec=min(limit.expected_sec for limit in limits) + (compile_sec or 0.0),
        soonest_sec=min(limit.soonest_sec for limit in limits) + (compile_sec or 0.0),
        latest_sec=min(limit.latest_sec for limit in limits) + (compile_sec or 0.0),
    )


def _exactly(sec: float) -> TimeLeft:
    return TimeLeft(expected_sec=sec, soonest_sec=sec, latest_sec=sec)


def _of_compile(job: Job, compile_sec: float) -> float | None:
    """Return what is left of a compile, or all of one that has not begun; None where it takes longer than was expected."""
    began_at = job.progress.get("began_at")
    left_sec = compile_sec if began_at is None else compile_sec - (job.updated_at - began_at)
    return left_sec if left_sec > 0 else None


def eta_sec(job: Job) -> float | None:
    """Return the remaining seconds of the job, at the mean pace of its search; None as in `time_left`."""
    estimate = time_left(job)
    return None if estimate is None else estimate.expected_sec
