"""Values of jobs: their tasks, steps, trials, events and artifacts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
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


class StepKind(StrEnum):
    """The kind of work of a step."""

    IMPORT = "import"
    EXTRACT = "extract"
    TUNE = "tune"
    CONFIRM = "confirm"
    COMPILE = "compile"
    SOURCE = "source"
    SAMPLES = "samples"
    MEASURE = "measure"
    DRAFT = "draft"

    @property
    def needs_device(self) -> bool:
        """Whether a step of this kind waits for a device, in its job's turn."""
        return self in (StepKind.TUNE, StepKind.CONFIRM, StepKind.COMPILE)


class StepState(StrEnum):
    """State of a step; the last three are final."""

    READY = "ready"
    LEASED = "leased"
    PAUSED = "paused"  # nobody can claim it until its job is resumed
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A short piece of work for one Celery message.

    Attributes:
        subject_id: Its subject: the model of an import, the key of a kernel's source, a file of samples, otherwise the job. A
            measurement belongs to no job (`job_id`), since its subject has ended; nor does a draft, which goes on beside its rounds.
        fence: Grows with each claim; a write counts only under the present fence.
        attempts: Claims so far, less the ones handed back by `release`.
        faults: Attempts that failed although neither worker nor device was lost.
        not_before: It is not due before this time.
        sent_at: When the dispatcher last sent it to the broker.
        in_flight: The present work of a leased tuning step, for the other steps of its job; see `tunefarm_app.leases.tracks`.
        asked_by: The owner of a measurement: the key that asked for it, or that this one was rotated from. None of other steps.
    """

    id: str
    kind: StepKind
    subject_id: str
    model_id: str
    job_id: str | None
    round: int
    state: StepState
    fence: int
    lease_owner: str | None
    lease_until: float | None
    attempts: int
    faults: int
    not_before: float
    sent_at: float | None
    error: Json | None
    in_flight: Json | None
    created_at: float
    finished_at: float | None
    asked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrial:
    """A trial to be stored. See `Trial` for the fields."""

    position: int
    ordinal: int
    config_key: str
    asked_key: str
    outcome: str
    cost_sec: float | None
    message: str
    build_sec: float
    run_sec: float
    measured_at: float
    record_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(NewTrial):
    """A config that a job tried, and its outcome.

    Attributes:
        position: Index of the task in the job.
        round: Round of the job; `ordinal` counts within the round.
        config_key: `Config.key` as applied; `asked_key` as the tuner asked for it.
        outcome: A `tunefarm_tuning.measure.interfaces.Outcome`.
    """

    id: str
    job_id: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one attempt at a step, or an upload, spent its time on.

    Attributes:
        job_id: None of an upload and of an import: all jobs of the model share them.
        spans: `Span.to_json` of each, by the clocks of the machines that worked.
        dropped: How many more there were.
    """

    id: str
    model_id: str
    job_id: str | None
    spans: list[Any]
    dropped: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a job. `seq` counts from 1 within the job, without gaps."""

    job_id: str
    seq: int
    kind: str
    data: Json
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A job's result: the packed file's blob, its manifest and its report.

    Attributes:
        envelope: The signed statement about it, as a line of JSON; None if the farm had no key when it was compiled.
    """

    id: str
    job_id: str
    sha256: str
    size_bytes: int
    name: str
    manifest: Json
    report: Json
    created_at: float
    envelope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a job offers until it has an artifact: the untuned network from its first seconds on, or one of its kernels so far.

    Attributes:
        tasks: The tuning tasks of the network.
        covered: How many of them run a tuned kernel.
        envelope: As `Artifact.envelope`.
    """

    job_id: str
    sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    created_at: float
    envelope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTiming:
    """A network that a search compiled with its kernels so far, and how fast it was on a device of the search.

    Attributes:
        number: The round of the draft step that compiled it; 0 is the untuned network.
        sha256: Its artifact's blob, and `inputs_sha256` that of its inputs; both are kept until it was timed.
        tasks: The tuning tasks of the network. `covered`: how many of them run a tuned kernel.
        began_sec: Seconds of search when its compile began.
        costs: Best cost by the position of the task, as far as it was known then.
        expected_sec: How long timing it should take.
        tries: How often that was begun.
        not_before: Before this time, nobody else begins.
        error: Why it cannot be timed; None if it was, or may be.
        latency_sec: Seconds per inference; None until it was timed. `low_sec` and `high_sec` are its 95 % interval.
        quiet: Whether other work hardly slowed it; None if nobody looked.
        device: The name of the device.
        tuned_sec: Seconds of search when it was timed.
        spent_sec: What the timing took.
        envelope: The signed statement about the artifact, as a draft's.
    """

    job_id: str
    number: int
    sha256: str
    inputs_sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    began_sec: float
    costs: Json
    expected_sec: float
    tries: int
    not_before: float
    error: Json | None
    latency_sec: float | None
    low_sec: float | None
    high_sec: float | None
    quiet: bool | None
    device_id: str | None
    device: str | None
    tuned_sec: float | None
    spent_sec: float
    created_at: float
    timed_at: float | None
    envelope: str | None = None

    @property
    def waits(self) -> bool:
        """Whether it is still to be timed."""
        return self.latency_sec is None and self.error is None
