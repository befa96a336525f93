"""Values of jobs, their tasks, and sweeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tunefarm_db.states.job import JobState
from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A tuning job.

    Attributes:
        target: `Target.to_json`; `target_key` is `Target.key`.
        budget: `Budget.to_json`.
        request_digest: Hash of the request, to tell a repeated request from another one under the same
            idempotency key.
        cancel_requested: Whether the user asked to stop; workers on the job check it.
        priority: Jobs with a higher one get devices first.
        turn_sec: Device time that it had, for fair turns among jobs of one priority; it begins at the minimum of the other jobs,
            and has no meaning alone.
        tuned_sec: Wall-clock spent searching; rounds that run side by side count once.
        counted_until: The time up to which that is counted.
        best_latency_sec: Sum of weight x best cost over the tasks; None until each has one.
        stop_reason: Why the search ended (a limit's name, ``"exhausted"``); None before. The winners may still have to
            be confirmed then.
        progress: The report of the present phase.
        event_seq: Number of the newest event.
        tags: A person's words for it, in order. `note`: a person's text.
        network_latency_sec: Seconds per inference of the artifact, as `tunefarm_app.report.numbers` has it from the report; before
            there is one, the least of the job's network timings; None until the network was timed. Lists sort by it.
        speedups: `Ratio.to_json` by the name of the other network (``"untuned"``, ``"onnxruntime"``). Lists sort by `over_untuned`
            and by `over_runtime`, the ratio to the fastest other runtime.
    """

    id: str
    model_id: str
    target: Json
    target_key: str
    device_key: str
    tuner: str
    seed: int
    budget: Json
    options: Json
    state: JobState
    error: Json | None
    idempotency_key: str | None
    request_digest: str | None
    cancel_requested: bool
    priority: int
    turn_sec: float
    started_tuning_at: float | None
    tuned_sec: float
    counted_until: float | None
    trials: int
    failures: int
    trials_since_improvement: int
    best_latency_sec: float | None
    stop_reason: str | None
    progress: Json
    event_seq: int
    artifact_id: str | None
    created_at: float
    updated_at: float
    finished_at: float | None
    tags: list[str] = field(default_factory=list)
    note: str = ""
    network_latency_sec: float | None = None
    speedups: Json = field(default_factory=dict)
    over_untuned: float | None = None
    over_runtime: float | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Several jobs that were asked for together, with one budget.

    Attributes:
        budget: What was asked for the whole sweep; each job has its share (`tunefarm_app.jobs.sweeps`). Empty without a search.
        request_digest: As a job's.
        cancelled_at: When a person cancelled it.
    """

    id: str
    budget: Json
    tags: list[str]
    note: str
    idempotency_key: str | None
    request_digest: str
    cancelled_at: float | None
    created_at: float
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSweepCell:
    """A cell to be stored. See `SweepCell` for the fields."""

    model_id: str | None
    model_name: str
    device_key: str
    precision: str
    job_id: str | None = None
    error: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell(NewSweepCell):
    """One combination of a sweep: a model, a pool and a precision.

    Attributes:
        model_id: None of a file that was not even taken; its pool and its precision are empty then.
        job_id: Its job; None if the combination was refused, for the reason in `error`.
    """

    sweep_id: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """A job's view of one of its tuning tasks.

    Attributes:
        space_key: Key of its `Space`; None until the task's first round.
        best_cost_sec: Fastest trial so far. `untuned_cost_sec`: the kernel as TVM makes it untuned.
        spent_sec: Wall-clock of this task's rounds.
        exhausted: Nothing is left to try.
        confirmations: How often its best configs were confirmed for this job.
        history: ``[trials, best_cost_sec]`` after each round of this task.
        alternative: As in `ModelTask`.
    """

    job_id: str
    position: int
    workload_key: str
    toolchain: str
    weight: int
    name: str
    space_key: str | None
    trials: int
    failures: int
    best_cost_sec: float | None
    untuned_cost_sec: float | None
    spent_sec: float
    exhausted: bool
    rounds: int
    confirmations: int
    history: list[list[Any]]
    alternative: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """How many tuning tasks a job has, and how many of them have a time.

    Attributes:
        kernels: Kernels of the network as it stands.
        kernels_measured: Those with a best cost.
        alternatives: Kernels of other algorithms, which may replace some of them.
        alternatives_measured: Those with a best cost.
    """

    kernels: int = 0
    kernels_measured: int = 0
    alternatives: int = 0
    alternatives_measured: int = 0
