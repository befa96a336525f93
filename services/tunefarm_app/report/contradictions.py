"""Whether the numbers of a report fit together: a contradiction is a fault of ours, and readers are told."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tunefarm_app.report.document import JobReport
from tunefarm_app.report.numbers import UNTUNED, exceeds
from tunefarm_tuning.records.coverage import MissReason

_SLACK = 1e-6
_ABOVE_ROOF = 1.1


def contradictions(report: JobReport) -> list[str]:
    """Return which numbers of a report do not fit together; nothing, as it should be."""
    return [
        *_contradicting_shares(report),
        *_contradicting_kernels(report),
        *_contradicting_ratios(report),
    ]


def _contradicting_shares(report: JobReport) -> Iterator[str]:
    parts = report.breakdown
    if parts is None or report.latency is None:
        return
    wholes = {"before": report.latency.untuned.median_sec, "after": report.latency.tuned.median_sec}
    for when, whole_sec in wholes.items():
        kernels_sec, rest_sec = getattr(parts, f"kernels_{when}_sec"), getattr(parts, f"rest_{when}_sec")
        shares = [getattr(kernel, f"share_{when}") for kernel in report.kernels]
        total = sum(share for share in shares if share is not None) + rest_sec / (kernels_sec + rest_sec)
        if not getattr(parts, f"shares_{when}_known"):
            if any(share is not None for share in shares):
                yield f"kernels have shares of an inference ({when}), but it is not known how long the others take"
        elif not math.isclose(total, 1.0, abs_tol=_SLACK):
            yield f"the shares of an inference ({when}) add up to {total:.6f}"
        if rest_sec < 0 or not math.isclose(
            kernels_sec + rest_sec, max(whole_sec, kernels_sec), rel_tol=_SLACK
        ):
            yield f"the parts of an inference ({when}) do not add up to it"


def _contradicting_kernels(report: JobReport) -> Iterator[str]:
    untuned: dict[str, set[float]] = {}
    for kernel in report.kernels:
        roof = kernel.roofline
        if roof is not None and (roof.share_of_peak or 0.0) > _ABOVE_ROOF:
            yield f"{kernel.name} is above the device's peak"
        if roof is not None and (roof.share_of_bound or 0.0) > _ABOVE_ROOF:
            yield f"{kernel.name} is above its roofline"
        if not kernel.trials and kernel.reason == MissReason.NO_RECORD.value:
            yield f"{kernel.name} was not tried, but is said to have failed"
        if kernel.speedup is not None and report.latency is not None:
            latency = report.latency
            if exceeds(kernel.before_sec, latency.untuned) or exceeds(kernel.after_sec, latency.tuned):
                yield f"{kernel.name} has a speed-up, but took longer alone than the whole network"
        if kernel.untuned is not None:
            untuned.setdefault(kernel.workload_key, set()).add(kernel.untuned.median_sec)
    yield from (f"kernel {key} has several untuned times" for key, secs in untuned.items() if len(secs) > 1)
    for alternative in report.alternatives:
        direct = next((k for k in report.kernels if k.workload_key == alternative.workload_key), None)
        if (
            direct is None
            or direct.untuned is None
            or alternative.direct_sec is None
            or direct.tuned is not None
        ):
            continue
        if not math.isclose(alternative.direct_sec, direct.untuned.median_sec, rel_tol=_SLACK):
            yield f"{direct.name} has another untuned time beside {alternative.algorithm}"
    tried = sum(kernel.trials for kernel in report.kernels)
    if report.outcomes and sum(report.outcomes.values()) != sum(
        sum(k.outcomes.values()) for k in report.kernels
    ):
        yield "the outcomes of all trials are not those of the kernels"
    if report.kernels and tried != report.job.trials:
        yield f"the kernels had {tried} trials, the job {report.job.trials}"


def _contradicting_ratios(report: JobReport) -> Iterator[str]:
    if report.latency is None:
        return
    for name, ratio in report.latency.ratios.items():
        other = report.latency.untuned if name == UNTUNED else report.latency.others().get(name)
        if other is None or not math.isclose(
            ratio.value, other.median_sec / report.latency.tuned.median_sec, rel_tol=_SLACK
        ):
            yield f"the speed-up over {name} is not the ratio of the two latencies"
        if ratio.low is not None and ratio.high is not None and not ratio.low <= ratio.value <= ratio.high:
            yield f"the speed-up over {name} is outside of its interval"
