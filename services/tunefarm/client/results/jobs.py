"""Jobs, their tasks, trials, events and records, as the client returns them.

Most keep the whole answer in `raw`, for what this version has no name for. Times that end in ``_at`` are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.artifacts import Draft, Speedup, TimedNetwork
from tunefarm.client.results.models import Problem, Tensor
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities
from tunefarm_text.job_terms import RUNTIMES, libraries_option

FINISHED_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Answer):
    """Progress of a job.

    Attributes:
        phase: ``queued``, ``extracting``, ``tuning``, ``confirming`` (the best configs are measured again),
            ``compiling`` or a final state.
        tasks_total: Number of tuning tasks; `tasks_with_record`: of those that have a working config.
        alternatives_total: Those of `tasks_total` that belong to other algorithms, which may replace kernels of the network.
        alternatives_with_record: Those of `tasks_with_record` that do.
        best_latency_sec: Sum of the best kernel times, weighted by calls per inference; None until each task has one.
        tuned_sec: Seconds of search spent.
    """

    phase: str = ""
    tasks_total: int = 0
    tasks_with_record: int = 0
    alternatives_total: int = 0
    alternatives_with_record: int = 0
    trials: int = 0
    failures: int = 0
    best_latency_sec: float | None = None
    tuned_sec: float = 0.0

    @property
    def to_tune_text(self) -> str:
        """What the search tries: ``"6 kernels to tune"``; empty until it is known."""
        kernels = self.tasks_total - self.alternatives_total
        return quantities.kernels_to_tune(kernels, self.alternatives_total) if self.tasks_total else ""

    @property
    def measured_text(self) -> str:
        """How many kernels have a time: ``"6 of 6 kernels measured"``."""
        return self._measured(noun=True)

    @property
    def measured_short(self) -> str:
        """The same without the noun, where a heading has it: ``"6 of 6 measured"``."""
        return self._measured(noun=False)

    def _measured(self, *, noun: bool) -> str:
        return quantities.kernels_measured(
            self.tasks_with_record - self.alternatives_with_record,
            self.tasks_total - self.alternatives_total,
            self.alternatives_with_record,
            self.alternatives_total,
            noun=noun,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job(Shown, Answer):
    """A tuning job.

    Attributes:
        model_name: Name of the model; empty if the server is of an earlier release.
        state: ``queued``, ``extracting``, ``tuning``, ``compiling``, ``paused``, ``succeeded``, ``failed`` or
            ``cancelled``.
        budget: ``trials``, ``wall_sec``, ``job_sec``, ``patience_trials``, ``min_gain_per_min``; None if a limit is not set.
        best_latency_sec: Sum of the best kernel times, weighted by calls per inference; None until each task has one.
        network_latency_sec: Measured latency of the artifact; before there is one, the least of `networks`; None until the network was
            timed.
        speedups: How many times as fast as ``untuned``, ``onnxruntime`` and others the artifact is; empty until there is one.
        tags: Words to find it by; `note` is a text for people.
        tuned_sec: Seconds of search spent.
        eta_sec: Expected remaining seconds of the job, compile included. None if nobody knows, the job has no limit of time or
            trials, or the server does not report it.
        stop_reason: Limit that ended the search; ``exhausted`` where nothing was left to try; ``finished`` if somebody ended it;
            ``no-search`` or ``no-tasks`` where there was none. None before the end.
        priority: Jobs with a higher priority get devices first.
        waiting: What it waits for (a device, its turn on a device, a worker, another attempt); None if working.
        error: Error, if it failed; else None.
        networks: The network with its kernels so far, as the search timed it on the way, oldest first.
        draft: What `download` with ``so_far`` gets while there is no artifact; None until it is compiled and checked.
    """

    id: str
    model_id: str = ""
    model_name: str = ""
    state: str
    target_key: str = ""
    device_key: str = ""
    tuner: str = ""
    seed: int = 0
    budget: Mapping[str, int | float | None] = field(default_factory=dict)
    trials: int = 0
    failures: int = 0
    best_latency_sec: float | None = None
    network_latency_sec: float | None = None
    speedups: Mapping[str, Speedup] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    note: str = ""
    tuned_sec: float = 0.0
    eta_sec: float | None = None
    stop_reason: str | None = None
    cancel_requested: bool = False
    priority: int = 0
    waiting: str | None = None
    error: Problem | None = None
    artifact_id: str | None = None
    draft: Draft | None = None
    networks: tuple[TimedNetwork, ...] = ()
    progress: Progress
    owner: str | None = None
    created_at: float = 0.0
    finished_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it succeeded, failed or was cancelled."""
        return self.state in FINISHED_STATES

    @property
    def searches(self) -> bool:
        """Whether it searches; a job that does not is compiled from what is on record."""
        return (self.raw.get("options") or {}).get("search") is not False

    @property
    def precision(self) -> str:
        """The format of stored weights: ``as-model`` unless another was asked for."""
        return str((self.raw.get("options") or {}).get("precision", "as-model"))

    @property
    def target_text(self) -> str:
        """The target, with the libraries that may compute kernels, which `target_key` leaves out."""
        return " ".join(filter(None, (self.target_key, libraries_option(self.raw.get("target") or {}))))

    @property
    def best_text(self) -> str:
        """How fast the network is: as it was measured, or else the sum of its kernels, which is called an estimate."""
        is_measured = self.network_latency_sec is not None
        sec = self.network_latency_sec if is_measured else self.best_latency_sec
        return quantities.doubted_latency(sec, is_measured=is_measured, is_disturbed=self._is_disturbed)

    @property
    def latency_text(self) -> str:
        """The same in full: how it is known."""
        if self.network_latency_sec is None:
            kernels = quantities.latency(self.best_latency_sec)
            how = ", an estimate: the sum of the kernels' best times" if self.best_latency_sec else ""
            return f"{kernels}{how}"
        timed = min(self.networks, key=lambda network: network.latency_sec, default=None)
        text = quantities.latency(self.network_latency_sec)
        if timed is None or self.artifact_id is not None:
            return f"{text}, disturbed by other work" if self._is_disturbed else text
        return f"{text}, {timed.text}"

    @property
    def _is_disturbed(self) -> bool:
        """Whether the artifact was timed beside other networks, and no ratio to one of them is known."""
        return quantities.is_disturbed((ratio.low, ratio.high) for ratio in self.speedups.values())

    @property
    def kernels_text(self) -> str:
        """How many kernels have a time; how many run tuned in the network that was timed last, if those are fewer."""
        text, newest = self.progress.measured_short, self.networks[-1] if self.networks else self.draft
        measured = self.progress.tasks_with_record - self.progress.alternatives_with_record
        if self.artifact_id is not None or newest is None or not 0 < newest.covered < measured:
            return text
        return f"{text}; {quantities.tuned_so_far(newest.covered, newest.tasks)}"

    @property
    def over_untuned_text(self) -> str:
        """How many times as fast as untuned the artifact is, as far as that is known."""
        speedup = self.speedups.get("untuned")
        return quantities.NONE if speedup is None else speedup.text

    @property
    def over_runtime_text(self) -> str:
        """The same over the fastest other runtime that was timed beside it; its name follows."""
        others = {
            name: speedup
            for name, speedup in self.speedups.items()
            if name != "untuned" and speedup.comparable
        }
        if not others:
            return quantities.NONE
        name = min(others, key=lambda name: others[name].value)
        return quantities.over(others[name].text, RUNTIMES.get(name, name))

    def summary(self) -> Mapping[str, str]:
        """Return the job's row in a notebook: column name to text."""
        return {
            "": self.id,
            "model": self.model_name or self.model_id,
            "state": self.state,
            "target": self.target_text,
            "trials": f"{self.trials} ({self.failures} failed)",
            "kernels": self.progress.measured_short,
            "latency": self.best_text,
            "speed-up over other runtimes": self.over_runtime_text if self.speedups else "",
            "tags": ", ".join(self.tags),
            "time left": "" if self.eta_sec is None else quantities.duration(self.eta_sec),
            "waiting": (self.waiting or "").removeprefix("waiting "),
            "error": self.error.message if self.error else "",
        }

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        progress = data.get("progress") or {}
        if isinstance(progress, dict):  # a job that has not begun reports no phase: its state is the phase
            progress = {"phase": data.get("state"), **progress}
        return {**data, "progress": progress}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(Answer):
    """Efficiency of a kernel against its device's peak. Figures that were not measured are None.

    Attributes:
        flops_per_sec: Floating-point operations per second of the kernel.
        peak_flops_per_sec: Peak of the device model on all cores.
        share_of_peak: `flops_per_sec` divided by `peak_flops_per_sec`.
        bound_flops_per_sec: Roofline: the peak, or the limit of the memory's bandwidth if lower.
        share_of_bound: `flops_per_sec` divided by `bound_flops_per_sec`.
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
    """A kernel of a job and its progress.

    Attributes:
        weight: Calls per inference.
        outcomes: Number of trials by outcome.
        best_cost_sec: Seconds per call of the fastest config so far.
        untuned_cost_sec: Seconds per call of the untuned kernel, as the compiler measured it; None if not measured.
        disturbed: Whether the kernel took longer alone than its whole network: other work disturbed the compiler's timing.
        flops: Floating-point operations of one call; None if unknown.
        roofline: Efficiency against the device's peak; None if no config works yet.
        spent_sec: Seconds spent on the task.
        counts: Whether its time counts in the network's. A faster alternative replaces it.
        share: Its share of an inference of the artifact; of the kernels' best times, while that is not known. None if unknown.
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
    disturbed: bool = False
    flops: float | None = None
    roofline: Roofline | None = None
    spent_sec: float = 0.0
    counts: bool = True
    share: float | None = None

    def summary(self) -> Mapping[str, str]:
        """Return the kernel's row in a notebook: column name to text."""
        return {
            "": self.name,
            "calls": str(self.weight),
            "trials": f"{self.trials} ({self.failures} failed)",
            "best": quantities.latency(self.best_cost_sec),
            "untuned": quantities.latency(self.untuned_cost_sec) + (" (disturbed)" if self.disturbed else ""),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trial(Shown, Answer):
    """A config that a job tried, and its outcome.

    Attributes:
        position: Index of the task in the job.
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
        """Return the trial's row in a notebook: column name to text."""
        return {
            "": str(self.position),
            "round": str(self.round),
            "outcome": self.outcome,
            "time": quantities.latency(self.cost_sec),
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record(Shown, Answer):
    """A tuning record of the server.

    Attributes:
        workload_key: Content hash of the computation.
        kernel: Name of the kernel, from the graph; None if the farm has only the record.
        args: The kernel's arguments, the result last; empty if the farm has only the record.
        toolchain: Compiler version.
        outcome: ``ok`` or a class of failure.
        cost_sec: Median seconds per call; None unless ok.
        certificate_sha256: SHA-256 of the certificate by which the device's agent was connected; None if the record came in another way.
        ticket_jti: Identifier of the token that opened the session of the measurement; None likewise.
        owner: The API key that imported it; None for what the farm measured.
    """

    workload_key: str
    kernel: str | None = None
    args: tuple[Tensor, ...] = ()
    target_key: str = ""
    device_model: str = ""
    toolchain: str = ""
    outcome: str
    cost_sec: float | None = None
    measured_at: float = 0.0
    tuner: str = ""
    certificate_sha256: str | None = None
    ticket_jti: str | None = None
    owner: str | None = None

    @property
    def shapes(self) -> str:
        """The shapes and element types of the arguments, as text; empty if they are not known."""
        return quantities.kernel_shapes(self.raw.get("args") or ())

    def summary(self) -> Mapping[str, str]:
        """Return the record's row in a notebook: column name to text."""
        return {
            "": self.kernel or self.workload_key,
            "shapes": self.shapes,
            "target": self.target_key,
            "device": self.device_model,
            "outcome": self.outcome,
            "time": quantities.latency(self.cost_sec),
            "tuner": self.tuner,
            "measured": quantities.local_time(self.measured_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordImport(Answer):
    """What became of the records of an import.

    Attributes:
        imported: How many were added.
        left_out: How many others there were, by reason: ``on-record``, ``unknown-workload``, ``space-changed``.
        unchecked: How many added ones are of kernels that no job has tuned here, so that their configs could not be checked.
    """

    imported: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    unchecked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event(Shown, Result):
    """An event of a job; `seq` counts from 1 within the job."""

    seq: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0

    def summary(self) -> Mapping[str, str]:
        """Return the event's row in a notebook: column name to text."""
        return {
            "": str(self.seq),
            "kind": self.kind,
            "at": quantities.local_time(self.created_at),
            "data": ", ".join(f"{name}={value}" for name, value in self.data.items()),
        }
