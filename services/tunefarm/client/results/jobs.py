"""Jobs, their tasks, trials, events and records, as the client returns them.

Most keep the whole answer in `raw`, for what this version has no name for. Times that end in ``_at`` are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.models import Problem
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities

FINISHED_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Answer):
    """How far a job is.

    Attributes:
        phase: ``queued``, ``extracting``, ``tuning``, ``confirming`` (the best are measured again), ``compiling`` or a
            final state.
        best_latency_sec: The model's latency as the sum of its kernels' best times; None until each has one.
        tuned_sec: Wall-clock spent searching.
    """

    phase: str = ""
    tasks_total: int = 0
    tasks_with_record: int = 0
    trials: int = 0
    failures: int = 0
    best_latency_sec: float | None = None
    tuned_sec: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job(Shown, Answer):
    """A tuning job.

    Attributes:
        state: ``queued``, ``extracting``, ``tuning``, ``compiling``, ``paused``, ``succeeded``, ``failed`` or
            ``cancelled``.
        budget: ``trials``, ``wall_sec``, ``patience_trials``, ``min_gain_per_min``; None where a limit is not set.
        best_latency_sec: The model's latency as the sum of its kernels' best times; None until each has one.
        tuned_sec: Wall-clock spent searching.
        eta_sec: For how many more seconds it is expected to search. None unless it searches, where it has no limit of
            time or trials, and from a server that does not say.
        stop_reason: Why the search ended: the limit that was reached, or ``exhausted``.
        priority: Jobs with a higher one get devices first.
        waiting: What it waits for (a device, its turn on one, a worker, another try); None while it is at work.
        error: Why it failed; None where it did not.
    """

    id: str
    model_id: str = ""
    state: str
    target_key: str = ""
    device_key: str = ""
    tuner: str = ""
    seed: int = 0
    budget: Mapping[str, int | float | None] = field(default_factory=dict)
    trials: int = 0
    failures: int = 0
    best_latency_sec: float | None = None
    tuned_sec: float = 0.0
    eta_sec: float | None = None
    stop_reason: str | None = None
    cancel_requested: bool = False
    priority: int = 0
    waiting: str | None = None
    error: Problem | None = None
    artifact_id: str | None = None
    progress: Progress
    created_at: float = 0.0
    finished_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it succeeded, failed or was cancelled."""
        return self.state in FINISHED_STATES

    def summary(self) -> Mapping[str, str]:
        return {
            "": self.id,
            "state": self.state,
            "target": self.target_key,
            "trials": f"{self.trials} ({self.failures} failed)",
            "kernels": f"{self.progress.tasks_with_record} of {self.progress.tasks_total}",
            "best": quantities.latency(self.best_latency_sec),
            "time left": "" if self.eta_sec is None else quantities.duration(self.eta_sec),
            "waits for": self.waiting or "",
            "error": self.error.message if self.error else "",
        }

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        progress = data.get("progress") or {}
        if isinstance(progress, dict):  # a job that has not begun reports no phase: it is its state
            progress = {"phase": data.get("state"), **progress}
        return {**data, "progress": progress}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(Answer):
    """How near a kernel is to what its device can do. A figure that was not measured is None.

    Attributes:
        flops_per_sec: Floating-point operations per second of the kernel.
        peak_flops_per_sec: What a device of its kind can do on all cores.
        share_of_peak: `flops_per_sec` by `peak_flops_per_sec`.
        bound_flops_per_sec: The roofline: the peak, or what the memory's bandwidth allows if that is less.
        share_of_bound: `flops_per_sec` by `bound_flops_per_sec`.
        memory_bound: Whether the bandwidth is the bound.
    """

    flops_per_sec: float
    peak_flops_per_sec: float | None = None
    share_of_peak: float | None = None
    bound_flops_per_sec: float | None = None
    share_of_bound: float | None = None
    memory_bound: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobTask(Shown, Answer):
    """A kernel of a job, and how far its tuning is.

    Attributes:
        weight: How often one inference runs it.
        outcomes: How many trials ended how.
        best_cost_sec: Its fastest time so far, seconds per call.
        untuned_cost_sec: Its time untuned, seconds per call, as the compiler measured it; None where it did not.
        flops: Floating-point operations of one call; None where they are not known.
        roofline: How near it is to what its device can do; None where no candidate works yet.
        spent_sec: Seconds spent on it.
        counts: Whether its time is part of the network's: a faster alternative takes its place.
    """

    position: int
    name: str = ""
    workload_key: str
    weight: int = 1
    trials: int = 0
    failures: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    best_cost_sec: float | None = None
    untuned_cost_sec: float | None = None
    flops: float | None = None
    roofline: Roofline | None = None
    spent_sec: float = 0.0
    counts: bool = True

    def summary(self) -> Mapping[str, str]:
        return {
            "": self.name,
            "calls": str(self.weight),
            "trials": f"{self.trials} ({self.failures} failed)",
            "best": quantities.latency(self.best_cost_sec),
            # No ratio of the two: the search timed `best`, the compiler `untuned`. The report compares them side by side.
            "untuned": quantities.latency(self.untuned_cost_sec),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trial(Shown, Answer):
    """A config that a job tried, and how it ended.

    Attributes:
        position: Which of the job's tasks it is of.
        outcome: ``ok`` or a class of failure.
        cost_sec: Median seconds per call; None unless ok.
    """

    position: int = 0
    round: int = 0
    outcome: str
    cost_sec: float | None = None
    message: str = ""
    measured_at: float = 0.0

    def summary(self) -> Mapping[str, str]:
        return {
            "": str(self.position),
            "round": str(self.round),
            "outcome": self.outcome,
            "time": quantities.latency(self.cost_sec),
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record(Shown, Answer):
    """A measured fact from the server's history.

    Attributes:
        workload_key: Content hash of the computation.
        toolchain: The compiler's version.
        outcome: ``ok`` or a class of failure.
        cost_sec: Median seconds per call; None unless ok.
    """

    workload_key: str
    target_key: str = ""
    device_model: str = ""
    toolchain: str = ""
    outcome: str
    cost_sec: float | None = None
    measured_at: float = 0.0
    tuner: str = ""

    def summary(self) -> Mapping[str, str]:
        return {
            "": self.workload_key,
            "target": self.target_key,
            "device": self.device_model,
            "outcome": self.outcome,
            "time": quantities.latency(self.cost_sec),
            "tuner": self.tuner,
            "measured": quantities.local_time(self.measured_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event(Shown, Result):
    """Something that happened to a job; `seq` counts from 1 within the job."""

    seq: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0

    def summary(self) -> Mapping[str, str]:
        return {
            "": str(self.seq),
            "kind": self.kind,
            "at": quantities.local_time(self.created_at),
            "data": ", ".join(f"{name}={value}" for name, value in self.data.items()),
        }
