"""The values that a job's page shows, computed from its row, its tasks and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_app.report.numbers import UNTUNED, best_runtime, speedups_of
from tunefarm_app.storage.rows import grouped
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, JobTask
from tunefarm_text import quantities
from tunefarm_text.job_terms import RUNTIMES
from tunefarm_text.quantities import duration, plural
from tunefarm_tuning.search.task_groups import latency_sec

_AT_WORK = frozenset({JobState.QUEUED, JobState.EXTRACTING, JobState.TUNING, JobState.COMPILING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """How much faster, and than what.

    Attributes:
        ratio: How many times as fast.
        than: Than what.
        text: The ratio as far as it is known.
        verdict: ``"faster"``, ``"slower"``, or ``"same"`` if the timings do not tell.
        is_wide: Whether it is known only roughly.
    """

    ratio: float
    than: str
    text: str
    verdict: str
    is_wide: bool = False

    @property
    def is_none(self) -> bool:
        """Whether what was tuned is no faster than untuned, as far as the timings tell."""
        return self.than == "untuned" and self.verdict != "faster"

    @property
    def doubt(self) -> str:
        """What `is_none` means, to follow "over untuned": empty, "no faster", or that the timings do not tell."""
        if not self.is_none:
            return ""
        return "no faster" if self.verdict == "slower" or not self.is_wide else "the timings do not tell"

    @classmethod
    def unknown(cls, than: str) -> Speedup:
        """Return a speed-up of which disturbed timings tell nothing."""
        return cls(ratio=1.0, than=than, text=quantities.NOT_KNOWN, verdict="same", is_wide=True)

    @classmethod
    def of(cls, ratio: float, than: str) -> Speedup:
        """Return a speed-up without an interval, as single kernels have."""
        text = quantities.ratio(ratio)
        is_same = text == quantities.ratio(1.0)  # what reads 1.00 gained nothing
        return cls(
            ratio=ratio,
            than=than,
            text=text,
            verdict="same" if is_same else "faster" if ratio > 1 else "slower",
        )


def progress_words(job: Job) -> str:
    """Return how far the search is, held against its limits: ``"48 of 60 trials, 28 s of 30 s"``."""
    trials, wall_sec = job.budget.get("trials"), job.budget.get("wall_sec")
    words = [
        f"{job.trials:,} of {plural(trials, 'trial')}" if trials else plural(job.trials, "trial"),
        of_limit(job.tuned_sec, wall_sec),
    ]
    return ", ".join(words if trials or not wall_sec else words[::-1])


def of_limit(spent_sec: float, limit_sec: float | None) -> str:
    """Return the time of a search beside its limit; its last round may end after that: ``"8.2 s, limit 2.7 s"``."""
    if not limit_sec:
        return duration(spent_sec)
    spent, limit = duration(spent_sec), duration(limit_sec)
    return f"{spent} of {limit}" if spent_sec <= limit_sec or spent == limit else f"{spent}, limit {limit}"


def measured_speedup(job: Job, than: str | None = UNTUNED) -> Speedup | None:
    """Return what the finished artifact was measured to be faster than another network; None if it was not."""
    ratio = None if than is None else speedups_of(job).get(than)
    if than is None or ratio is None:
        return None
    return Speedup(
        ratio=ratio.value,
        than=RUNTIMES.get(than, than),
        text=ratio.text,
        verdict=ratio.verdict,
        is_wide=quantities.is_wide(ratio.low, ratio.high),
    )


def speedup_over_runtime(job: Job) -> Speedup | None:
    """Return how much faster the finished artifact is than the fastest other runtime that was timed beside it."""
    return measured_speedup(job, best_runtime(speedups_of(job)))


def speedup_so_far(tasks: Sequence[JobTask]) -> Speedup | None:
    """Return how much faster the kernels are than after each one's first round; None unless all have one."""
    if any(first_cost_sec(task) is None for task in tasks):
        return None
    first = latency_sec([grouped(task, first_cost_sec(task)) for task in tasks])
    best = latency_sec([grouped(task, task.best_cost_sec) for task in tasks])
    return Speedup.of(first / best, "first round") if first and best else None


def first_cost_sec(task: JobTask) -> float | None:
    """Return the best cost after the first round that had one."""
    return next((cost for _, cost in task.history if cost is not None), None)


def device_of(job: Job) -> str | None:
    """Return the name of the device that the job was last at work on; None if it had none yet, is paused, or ended."""
    device = job.progress.get("device")
    return device if isinstance(device, str) and job.state in _AT_WORK else None
