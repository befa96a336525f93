"""Compare each kernel of a compiled network with the roofline of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tunefarm_tuning import Peak, roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """A task as the roofline needs it."""

    workload_key: str
    name: str
    weight: int
    flops: float
    dtype: str | None
    moved_bytes: int | None


def task_rows(
    facts: Mapping[str, TaskFacts],
    records: Sequence[Mapping[str, Any]],
    peak: Peak | None,
    *,
    threads: int,
    kernels: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return each task, its kernel's cost, and its share of the roofline; unknown values are None.

    The cost is the record's; of a kernel without one in the artifact, that of its default schedule.

    Args:
        facts: The tasks, by workload.
        records: Those of the artifact, from its manifest.
        peak: What was measured of this machine.
        threads: Of a kernel.
        kernels: Those of the artifact's report, with samples of the default schedule.
    """
    costs = {record["workload_key"]: record["cost_sec"] for record in records}
    defaults = {
        kernel["workload_key"]: median(kernel["untuned_sec"]) for kernel in kernels if kernel["untuned_sec"]
    }
    rows = []
    for key, task in facts.items():
        tuned = key in costs
        cost_sec = costs[key] if tuned else defaults.get(key)
        line = roofline(
            task.flops, cost_sec, peak=peak, threads=threads, dtype=task.dtype, moved_bytes=task.moved_bytes
        )
        rows.append(
            {
                "workload": key,
                "name": task.name,
                "weight": task.weight,
                "flops": task.flops,
                "moved_bytes": task.moved_bytes,
                "tuned": tuned,
                "cost_sec": cost_sec,
                "share_of_peak": line.share_of_peak if line else None,
                "share_of_roofline": line.share_of_bound if line else None,
                "memory_bound": line.memory_bound if line else None,
            }
        )
    return rows


def kernel_sum_sec(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds that the recorded kernels take in one inference, by their records."""
    return sum(row["weight"] * row["cost_sec"] for row in rows if row["tuned"])


def weighted_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean share of the roofline over all recorded kernels with a known share, weighted by time."""
    known = [
        (row["weight"] * row["cost_sec"], row["share_of_roofline"])
        for row in rows
        if row["tuned"] and row["share_of_roofline"] is not None
    ]
    total_sec = sum(sec for sec, _ in known)
    return sum(sec * share for sec, share in known) / total_sec if total_sec else None
