"""The numbers of a job: speed-ups, shares, and the state of each kernel.

Report, pages, command and API show these numbers, and compute none of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tunefarm_app.report.document import ReportBreakdown
from tunefarm_app.report.evidence import Evidence, noted_ratio, ratio_of
from tunefarm_app.report.sections import ReportLatency, ReportRatio, ReportTiming
from tunefarm_app.storage.rows import grouped
from tunefarm_db.repositories.jobs.jobs import JobNumbers
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Draft, Job, JobTask, Json, NetworkTiming
from tunefarm_text.coverage_words import NOT_TRIED
from tunefarm_text.quantities import (
    duration,
    is_disturbed,
    is_known,
    kernels_measured,
    kernels_to_tune,
    percent,
    plural,
    tuned_so_far,
)
from tunefarm_tuning.core.ratio import Ratio
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.search.task_groups import counting

UNTUNED = "untuned"
_ERROR = 0.15
"""Kernels that are timed alone may take this much longer than the network that they are part of: their data lie elsewhere."""
_PACE_KNOWN_SEC = 5.0
"""Seconds of search after which its pace tells something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelNumbers:
    """What is known of one task's kernel.

    Attributes:
        untuned: Its untuned form, timed alone.
        tuned: The kernel of its best record, timed in turn with it.
        covered: Whether the artifact runs it tuned, or replaced by a tuned algorithm; None if unknown.
        algorithm: The algorithm that replaces it in the artifact.
        reason: Why the artifact runs it untuned: a key of `coverage_words.REASONS`.
        message: Details of the reason.
        call_sec: Seconds per call in the artifact, timed alone.
        before_sec: Seconds per inference, untuned.
        after_sec: Seconds per inference in the artifact.
        share_before: Share of an untuned inference.
        share_after: Share of an inference of the artifact.
        is_disturbed: Whether it took longer alone than the whole network that it is part of.
        is_alternative: Whether it is no kernel of the network by itself, but one that may take the place of some.
    """

    untuned: ReportTiming | None = None
    tuned: ReportTiming | None = None
    covered: bool | None = None
    algorithm: str | None = None
    reason: str | None = None
    message: str = ""
    call_sec: float | None = None
    before_sec: float | None = None
    after_sec: float | None = None
    share_before: float | None = None
    share_after: float | None = None
    is_disturbed: bool = False
    is_alternative: bool = False

    @property
    def speedup(self) -> float | None:
        """How many times as fast as untuned the artifact runs it; None if it runs untuned, or was not timed, or disturbed."""
        known = self.covered and not self.is_disturbed
        return self.before_sec / self.after_sec if known and self.before_sec and self.after_sec else None


def kernel_numbers(tasks: Sequence[JobTask], evidence: Evidence) -> dict[int, KernelNumbers]:
    """Return the numbers of each task's kernel, by position."""
    hits, timings, chosen = evidence.hits(), evidence.kernels(), evidence.chosen()
    coverage = evidence.coverage()
    misses = {miss.workload_key: miss for miss in coverage.misses} if coverage else {}

    def of(task: JobTask) -> KernelNumbers:
        key, part = task.workload_key, task.alternative is not None
        untuned, tuned = timings.get(key, (None, None))
        covered = True if key in (hits or ()) else False if key in misses else None
        timed = tuned if covered else untuned
        call_sec = timed.median_sec if timed else None
        alternative = chosen.get(key)
        if alternative is not None:
            covered, call_sec = True, alternative.sum_sec
        elif part:
            covered = covered or None
        miss = misses.get(key)
        return KernelNumbers(
            untuned=untuned,
            tuned=tuned,
            covered=covered,
            algorithm=alternative.algorithm if alternative is not None else None,
            reason=reason_of(miss.reason, task) if miss else None,
            message=miss.message if miss else "",
            call_sec=call_sec,
            before_sec=task.weight * untuned.median_sec if untuned and not part else None,
            after_sec=task.weight * call_sec if call_sec is not None and not part else None,
            is_alternative=part,
        )

    latency = evidence.latency()
    numbers = {task.position: _doubted(of(task), latency) for task in tasks}
    parts = breakdown(latency, numbers.values())
    if parts is None:
        return numbers
    before = parts.rest_before_sec + parts.kernels_before_sec
    after = parts.rest_after_sec + parts.kernels_after_sec
    return {
        position: replace(
            kernel,
            share_before=_share(kernel.before_sec, before) if parts.shares_before_known else None,
            share_after=_share(kernel.after_sec, after) if parts.shares_after_known else None,
        )
        if _is_timed(kernel)
        else kernel
        for position, kernel in numbers.items()
    }


def _doubted(kernel: KernelNumbers, latency: ReportLatency | None) -> KernelNumbers:
    """Return the numbers with `is_disturbed`: other work makes times longer, and no part takes longer than the whole."""
    if latency is None:
        return kernel
    is_disturbed = exceeds(kernel.before_sec, latency.untuned) or exceeds(kernel.after_sec, latency.tuned)
    return replace(kernel, is_disturbed=is_disturbed)


def exceeds(part_sec: float | None, whole: ReportTiming) -> bool:
    """Return whether a part of a network took longer alone than the whole, by more than such timings err."""
    return part_sec is not None and part_sec > (1 + _ERROR) * whole.median_sec


def time_shares(
    tasks: Sequence[JobTask], numbers: Mapping[int, KernelNumbers], latency: ReportLatency | None
) -> dict[int, float | None]:
    """Return each kernel's share of an inference, by position; of the kernels' best times, where no inference was timed."""
    if latency is not None and any(kernel.after_sec is not None for kernel in numbers.values()):
        return {position: kernel.share_after for position, kernel in numbers.items()}
    counts = counting([grouped(task, task.best_cost_sec) for task in tasks])
    calls_sec = [
        (numbers[task.position].call_sec or task.best_cost_sec or 0.0) * task.weight if counted else 0.0
        for task, counted in zip(tasks, counts, strict=True)
    ]
    total_sec = sum(calls_sec)
    return {
        task.position: sec / total_sec if sec and total_sec else None
        for task, sec in zip(tasks, calls_sec, strict=True)
    }


def _share(sec: float | None, whole_sec: float) -> float | None:
    return sec / whole_sec if sec is not None and whole_sec else None


def _is_timed(kernel: KernelNumbers) -> bool:
    return kernel.before_sec is not None and kernel.after_sec is not None


def reason_of(reason: str, task: JobTask) -> str:
    """Return the reason for which a task runs untuned; the compiler does not know that a task was never tried."""
    return NOT_TRIED if reason == MissReason.NO_RECORD.value and not task.trials else reason


def breakdown(latency: ReportLatency | None, kernels: Iterable[KernelNumbers]) -> ReportBreakdown | None:
    """Return the parts of an inference's time; None if too little was timed.

    The parts add up: where kernels alone took longer than the network, their sum is the whole, and the remainder is nothing.
    """
    kernels = list(kernels)
    timed = [kernel for kernel in kernels if _is_timed(kernel)]
    if latency is None or not timed:
        return None
    before = sum(kernel.before_sec or 0.0 for kernel in timed)
    after = sum(kernel.after_sec or 0.0 for kernel in timed)
    return ReportBreakdown(
        kernels_before_sec=before,
        kernels_after_sec=after,
        rest_before_sec=max(0.0, latency.untuned.median_sec - before),
        rest_after_sec=max(0.0, latency.tuned.median_sec - after),
        exceeds_before=exceeds(before, latency.untuned),
        exceeds_after=exceeds(after, latency.tuned),
        timed=len(timed),
        not_timed=len(kernels) - len(timed),
        untimed=sum(not _is_timed(kernel) and not kernel.is_alternative for kernel in kernels),
    )


def untried(tasks: Iterable[JobTask], covered: Collection[str] = ()) -> list[JobTask]:
    """Return the tasks of the network that had no trial, but those that run the kernel of an earlier job (`covered`)."""
    return [
        task
        for task in tasks
        if not task.trials and task.alternative is None and task.workload_key not in covered
    ]


def untried_sentence(tasks: Sequence[JobTask], report: Mapping[str, Any] | None = None) -> str:
    """Return how much of the network the search did not reach; empty if it reached all of it, or there was no search."""
    evidence = Evidence(manifest={}, report=report or {})
    coverage = evidence.coverage()
    # What an earlier job tuned is slower than untuned, or fell back with all others: it was tried.
    known = {
        miss.workload_key
        for miss in (coverage.misses if coverage else ())
        if miss.reason not in (MissReason.NO_RECORD.value, NOT_TRIED)
    }
    missing = untried(tasks, {*(evidence.hits() or ()), *known})
    if not report:  # without an artifact, what earlier jobs found counts
        missing = [task for task in missing if task.best_cost_sec is None]
    kernels = sum(task.alternative is None for task in tasks)
    if not missing or len(missing) == kernels:
        return ""
    share = percent(len(missing) / kernels)
    return (
        f"The search ended before {plural(len(missing), 'kernel')} of {kernels} ({share}) had a turn: "
        f"{'it was' if len(missing) == 1 else 'they were'} not tried. A larger budget reaches {'it' if len(missing) == 1 else 'them'}."
    )


def reach_sentence(job: Job, tasks: Sequence[JobTask]) -> str:
    """Return how many kernels the time of a running search suffices for, if not for all; else an empty text.

    Every kernel has its first turn before any has its second, of one candidate if time is short.
    """
    kernels = sum(task.alternative is None for task in tasks)
    tried = kernels - len(untried(tasks))
    wall_sec = job.budget.get("wall_sec")
    if not wall_sec or not job.trials or job.tuned_sec < _PACE_KNOWN_SEC or tried == kernels:
        return ""
    reached = tried + int(job.trials * max(0.0, wall_sec / job.tuned_sec - 1.0))
    if reached >= kernels:
        return ""
    return (
        f"At this pace, about {reached} of {plural(kernels, 'kernel')} get a turn within the budget of {duration(wall_sec)}; the "
        "others stay untuned. Extend the job to reach them."
    )


def measured_words(tasks: Sequence[JobTask]) -> str:
    """Return how many kernels of the network have a time, while the sum of all of them is unknown."""
    originals = [task for task in tasks if task.alternative is None]
    return kernels_measured(_measured(originals), len(originals))


def to_tune_words(tasks: Sequence[JobTask]) -> str:
    """Return what a job tunes: kernels of the network, and alternatives to them."""
    kernels = sum(task.alternative is None for task in tasks)
    return kernels_to_tune(kernels, len(tasks) - kernels)


def tuned_words(tasks: Sequence[JobTask], newest: NetworkTiming | Draft | None) -> str:
    """Return how many kernels have a time, and how many run tuned in the newest network, if those are fewer; else an empty text."""
    originals = [task for task in tasks if task.alternative is None]
    if newest is None or not 0 < newest.covered < _measured(originals):
        return ""
    others = [task for task in tasks if task.alternative is not None]
    measured = kernels_measured(_measured(originals), len(originals), _measured(others), len(others))
    return f"{measured}. {tuned_so_far(newest.covered, newest.tasks)}."


def _measured(tasks: Sequence[JobTask]) -> int:
    return sum(task.best_cost_sec is not None for task in tasks)


def ratios_of(report: Mapping[str, Any] | None) -> dict[str, ReportRatio]:
    """Return how many times as fast the artifact is as the other networks, by their names, from the compiler's report.

    Cheap enough for lists: the compiler noted them. Reports of earlier releases have none, so there they are computed.
    """
    return Evidence(manifest={}, report=report or {}).ratios()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How fast the network is: the artifact as it was measured, or else the sum of the kernels' best times.

    It is disturbed if it was timed beside other networks, and no ratio to one of them is known.
    """

    sec: float | None
    is_measured: bool
    is_disturbed: bool = False


def latency_of(job: Job) -> Latency:
    """Return the best that is known of how fast the job's network is."""
    if job.network_latency_sec is not None:
        disturbed = is_disturbed((ratio.low, ratio.high) for ratio in speedups_of(job).values())
        return Latency(sec=job.network_latency_sec, is_measured=True, is_disturbed=disturbed)
    return Latency(sec=job.best_latency_sec, is_measured=False)


def listed_numbers(report: Mapping[str, Any] | None) -> JobNumbers:
    """Return what a job stores of its report: how fast the artifact is. Pages, lists and the API read it there."""
    ratios = ratios_of(report)
    latency = (report or {}).get("latency")
    tuned = latency.get("tuned") if isinstance(latency, Mapping) else None
    median_sec = tuned.get("median_sec") if isinstance(tuned, Mapping) else None
    fastest = best_runtime(ratios)
    return JobNumbers(
        network_latency_sec=float(median_sec) if isinstance(median_sec, int | float) else None,
        speedups={name: noted_ratio(ratio) for name, ratio in ratios.items()},
        over_untuned=_sorting_value(ratios.get(UNTUNED)),
        over_runtime=None if fastest is None else _sorting_value(ratios[fastest]),
    )


def _sorting_value(ratio: ReportRatio | None) -> float | None:
    """Return a ratio as lists sort by it; None if it is not known: 1,944 of an interval from 0.1 to 21,000 would come first."""
    return ratio.value if ratio is not None and is_known(ratio.low, ratio.high) else None


def set_report(repos: Repositories, job_id: str, report: Json) -> None:
    """Replace the report of a job's artifact, and what lists show of it."""
    repos.artifacts.set_report(job_id, report)
    repos.jobs.set_numbers(job_id, **listed_numbers(report))


def speedups_of(job: Job) -> dict[str, ReportRatio]:
    """Return how many times as fast the job's artifact is as other networks, by their names."""
    return {
        str(name): ratio_of(Ratio.from_json(ratio), comparable=ratio.get("comparable", True))
        for name, ratio in job.speedups.items()
    }


def best_runtime(speedups: Mapping[str, ReportRatio]) -> str | None:
    """Return the name of the fastest other runtime that the artifact was timed beside; None if there is none.

    One whose outputs are further from the reference than the artifact's may be does not count: it computes something else.
    """
    others = {name: ratio.value for name, ratio in speedups.items() if name != UNTUNED and ratio.comparable}
    return min(others, key=lambda name: others[name], default=None)
