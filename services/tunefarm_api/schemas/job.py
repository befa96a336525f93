"""Schemas of jobs, their tasks, trials and events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import OWNER, Input, Note, Output, Tags, says_what_it_takes
from tunefarm_api.schemas.job_progress import EXAMPLE_BUDGET, Budget, Progress
from tunefarm_api.schemas.peak import Roofline
from tunefarm_api.schemas.problem import StoredError
from tunefarm_app.report.sections import ReportMeasurement, ReportNetwork, ReportRatio
from tunefarm_db.states.job import JobState
from tunefarm_text.job_terms import DEFAULT_TUNER, HELP, LABELS, MAX_PRIORITY, PRIORITIES

Whole = Annotated[int, Field(strict=True)]
Priority = Annotated[
    Whole | Literal["low", "normal", "high"],
    says_what_it_takes(f"{', '.join(PRIORITIES)}, or a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}"),
]
Target = Annotated[
    Annotated[str, Field(max_length=2000)] | dict[str, Any],
    says_what_it_takes("a text of at most 2,000 characters, or TVM's target JSON"),
]


Baselines = Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=20)]


class BudgetIn(Input):
    """Budget of the job: the first limit reached ends the search. At least one limit is required."""

    trials: Whole | None = Field(None, description=HELP["trials"])
    wall_sec: Annotated[float, Field(strict=True)] | None = Field(None, description=HELP["seconds"])
    job_sec: Annotated[float, Field(strict=True)] | None = Field(None, description=HELP["job_seconds"])
    patience_trials: Whole | None = Field(None, description=HELP["patience"])
    min_gain_per_min: Annotated[float, Field(strict=True)] | None = Field(None, description=HELP["min_gain"])


_TERMS: dict[str, Any] = {
    "budget": {"wall_sec": 600, "patience_trials": 200},
    "device_key": "epyc",
    "target": "host",
    "tuner": "xgb",
    "seed": 0,
}


class JobOptions(Input):
    """Further options of the search."""

    round_size: Whole | None = Field(
        None, description="Number of candidates of one round; by default, the server's setting."
    )
    precision: str | None = Field(None, max_length=100, description=HELP["precision"])
    max_error: float | None = Field(None, description=HELP["max_error"])
    other_shapes: Annotated[bool, Field(strict=True)] = Field(True, description=HELP["other_shapes"])
    search: Annotated[bool, Field(strict=True)] = Field(True, description=HELP["search"])
    baselines: Baselines = Field(default_factory=list, description=HELP["baselines"])


class MeasureIn(Input):
    """What to time an artifact beside."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"baselines": ["openvino", "litert"]}]})

    baselines: Baselines = Field(
        default_factory=list,
        description=HELP["baselines"]
        + " Added to those of the job and of earlier measurements, and timed from now on.",
    )


class JobCheck(Input):
    """Terms of a job and its labels, without the model."""

    model_config = ConfigDict(json_schema_extra={"examples": [_TERMS]})

    budget: BudgetIn | None = Field(
        None,
        description="Budget of the search. Required, unless `options.search` is false: then it must be omitted.",
    )
    target: Target | None = Field(None, description=HELP["target"])
    device_key: str | None = Field(None, max_length=200, description=HELP["device_key"])
    tuner: str = Field(DEFAULT_TUNER, max_length=100, description=HELP["tuner"])
    seed: Whole = Field(0, description=HELP["seed"])
    priority: Priority = Field(0, description=HELP["priority"])
    options: JobOptions = Field(
        JobOptions(
            round_size=None, precision=None, max_error=None, other_shapes=True, search=True, baselines=[]
        ),
        description="Options of the search.",
    )
    tags: Tags = Field(default_factory=list, description=LABELS["tags"])
    note: Note = Field("", description=LABELS["note"])


class JobChange(Input):
    """Changes of a job."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"priority": "high", "budget": {"wall_sec": 1200}}]}
    )

    priority: Priority | None = Field(None, description=HELP["priority"])
    budget: BudgetIn | None = Field(
        None, description="Limits to change. null removes a limit; omitted limits stay."
    )
    tags: Tags | None = Field(None, description="All tags of the job from now on. " + LABELS["tags"])
    note: Note | None = Field(None, description="The note from now on; empty for none.")


class JobCreate(JobCheck):
    """A request to tune a model."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model_id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd", **_TERMS}]}
    )

    model_id: str = Field(
        max_length=250,
        description="Model to tune; it must be ready. Its id, `name@version`, or its name, which means its newest version.",
    )
    samples: list[Annotated[str, Field(max_length=100)]] = Field(
        default_factory=list,
        max_length=8,
        description="Ids of the model's samples, which must be ready: the artifact is compared on them before random inputs, and "
        "timed on the first.",
    )


class CheckedJob(Output):
    """Target and pool that the request resolves to."""

    device_key: str = Field(description="Pool that would measure.")
    target: dict[str, Any] = Field(description="Target to compile for, as TVM's target JSON.")
    target_key: str = Field(description="Target as text, as in records.")


class Draft(Output):
    """The artifact so far of a job that has none of its own yet: untuned from its first seconds on."""

    name: str = Field(description="Name of the file.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    tasks: int = Field(description="Number of kernels to tune.")
    covered: int = Field(description="Number of those that are tuned in it; 0: it is untuned.")
    created_at: float = Field(description="When it was stored, Unix seconds.")


class Job(Output):
    """A tuning job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "job_01k8z40a8e5q7r9s1t3v5w7x9z",
                    "model_id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "model_name": "resnet18",
                    "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 8},
                    "target_key": "llvm -mcpu=znver5 -num-cores=8",
                    "device_key": "epyc",
                    "tuner": "xgb",
                    "seed": 0,
                    "budget": EXAMPLE_BUDGET,
                    "options": {"round_size": 8, "precision": "as-model", "other_shapes": True},
                    "state": "tuning",
                    "error": None,
                    "cancel_requested": False,
                    "priority": 0,
                    "waiting": None,
                    "started_tuning_at": 1800000010.0,
                    "tuned_sec": 71.5,
                    "trials": 128,
                    "failures": 9,
                    "trials_since_improvement": 12,
                    "best_latency_sec": 0.0081,
                    "eta_sec": 528.5,
                    "stop_reason": None,
                    "progress": {
                        "phase": "tuning",
                        "tasks_total": 18,
                        "tasks_with_record": 18,
                        "alternatives_total": 3,
                        "alternatives_with_record": 3,
                        "trials": 128,
                        "failures": 9,
                        "best_latency_sec": 0.0081,
                        "tuned_sec": 71.5,
                        "budget": EXAMPLE_BUDGET,
                    },
                    "event_seq": 19,
                    "artifact_id": None,
                    "created_at": 1800000005.0,
                    "updated_at": 1800000081.5,
                    "finished_at": None,
                }
            ]
        }
    )

    id: str = Field(description="Identifier.")
    model_id: str = Field(description="Model to tune.")
    model_name: str = Field("", description="Name of the model.")
    target: dict[str, Any] = Field(description="Target to compile for, as TVM's target JSON.")
    target_key: str = Field(description="Target as text, as in records.")
    device_key: str = Field(description="Pool that measures.")
    tuner: str = Field(description="Search strategy.")
    seed: int = Field(description="Seed of the search.")
    budget: Budget = Field(description="Budget of the search.")
    options: dict[str, Any] = Field(description="Further options of the search.")
    state: JobState = Field(description="State; `succeeded`, `failed` and `cancelled` are final.")
    error: StoredError | None = Field(description="Error, if the job failed.")
    cancel_requested: bool = Field(description="Whether cancellation was requested.")
    priority: int = Field(description="Jobs with a higher priority get devices first.")
    waiting: str | None = Field(
        description="What the current step waits for, if it waits: a device, its turn on a device, a worker, or another "
        "attempt."
    )
    started_tuning_at: float | None = Field(description="Start of the search, Unix seconds.")
    tuned_sec: float = Field(description="Seconds of search spent.")
    trials: int = Field(description="Number of trials so far.")
    failures: int = Field(description="Number of failed trials.")
    trials_since_improvement: int = Field(
        description="Number of trials since the last improvement of a kernel."
    )
    best_latency_sec: float | None = Field(
        description="Sum of the best kernel times, weighted by calls per inference; null until each task has one."
    )
    network_latency_sec: float | None = Field(
        None,
        description="Measured latency of the whole network: the artifact's median, and before there is an artifact, the lowest of "
        "`networks`. null until the network was timed: until then only the estimate `best_latency_sec` is known, which omits the time "
        "between kernels.",
    )
    speedups: dict[str, ReportRatio] = Field(
        default_factory=dict,
        description="How many times as fast as other networks the artifact is, by their names: `untuned`, `onnxruntime`, "
        "`torch_compile`, and the runtimes of `options.baselines`. Empty until there is an artifact.",
    )
    tags: list[str] = Field(default_factory=list, description="Tags, in order.")
    note: str = Field("", description="A person's note.")
    eta_sec: float | None = Field(
        None,
        description="Expected remaining seconds of the job, compile included, from the first limit to be reached at the mean pace so "
        "far. null if it is unknown, or the job has no limit of time or trials.",
    )
    stop_reason: str | None = Field(
        description="Limit that ended the search; `exhausted` where nothing was left to try; `finished` if a user ended it; `no-search` "
        "or `no-tasks` where there was none. null before the end."
    )
    progress: Progress = Field(description="Progress of the job.")
    event_seq: int = Field(description="Number of the newest event.")
    artifact_id: str | None = Field(description="Artifact; null until the job succeeded.")
    draft: Draft | None = Field(
        None,
        description="What can be downloaded as the artifact so far (`GET /v1/jobs/{id}/artifact?so_far=true`) while there is none; "
        "null until it is compiled and checked.",
    )
    networks: list[ReportNetwork] = Field(
        default_factory=list,
        description="The network with its kernels so far, as the search timed it on the way, oldest first: after a minute, and each time "
        "that the kernels promised to save 5 % of it.",
    )
    owner: str | None = Field(description=OWNER)
    created_at: float = Field(description="Creation time, Unix seconds.")
    updated_at: float = Field(description="Time of the last change, Unix seconds.")
    finished_at: float | None = Field(description="End time, Unix seconds.")


class Measurements(Output):
    """The measurements of a job's artifact."""

    items: list[ReportMeasurement] = Field(description="The measurements, oldest first.")
    state: Literal["idle", "waiting", "measuring", "failed"] = Field(
        description="State of the last one that was asked for: `waiting` for a worker or a device, `measuring`, `failed`, or `idle`."
    )
    asked_at: float | None = Field(
        description="When it was asked for, Unix seconds; null if no measurement was asked for."
    )
    error: StoredError | None = Field(
        description="Why it failed, or the error after which it is tried again; null if there is none."
    )
    waiting: str | None = Field(description="What it waits for; null unless `state` is `waiting`.")


class TaskAlternative(Output):
    """The alternative algorithm that a task belongs to. The artifact gets the faster algorithm."""

    algorithm: str = Field(description="Name of the algorithm, such as `winograd-4`.")
    instead_of: list[str] = Field(description="Workload keys of the kernels that it can replace.")
    overhead: float = Field(
        description="Estimated work of the algorithm's other kernels, relative to this one's."
    )


class JobTask(Output):
    """A kernel of the job and its progress."""

    position: int = Field(description="Index of the task in the job.")
    name: str = Field(description="Name of the kernel, from the graph.")
    workload_key: str = Field(description="Content hash of the computation.")
    weight: int = Field(description="Calls per inference.")
    alternative: TaskAlternative | None = Field(
        None, description="Algorithm that the task belongs to; null for a kernel of the original network."
    )
    counts: bool = Field(True, description="Whether its time counts: no faster alternative replaces it.")
    share: float | None = Field(
        None, description="Share of an inference: of the artifact, else of the best times; null if unknown."
    )
    trials: int = Field(description="Number of trials so far.")
    failures: int = Field(description="Number of failed trials.")
    outcomes: dict[str, int] = Field(description="Number of trials by outcome.")
    confirmations: int = Field(
        0,
        description="Number of confirmations: measurements of its best configs in turn, before the winner was chosen.",
    )
    best_cost_sec: float | None = Field(description="Seconds per call of the fastest config so far.")
    untuned_cost_sec: float | None = Field(
        description="Seconds per call of the untuned kernel, as compared with the tuned one in the artifact; null if "
        "not compared."
    )
    disturbed: bool = Field(
        False,
        description="Whether the kernel took longer alone than its whole network, untuned or in the artifact: other work disturbed the "
        "compiler's timing.",
    )
    flops: float | None = Field(None, description="Floating-point operations of one call; null if unknown.")
    roofline: Roofline | None = Field(
        None,
        description="Efficiency of the fastest config against the device's peak; null if no config works yet, or the "
        "kernel has no floating-point operations.",
    )
    spent_sec: float = Field(description="Seconds spent on the task.")
    rounds: int = Field(description="Number of rounds so far.")
    exhausted: bool = Field(description="Whether the search space is exhausted.")
    history: list[list[Any]] = Field(description="Pairs of trials and best cost, one per round.")


class Trial(Output):
    """A trial and its outcome."""

    id: str = Field(description="Identifier.")
    position: int = Field(description="Index of the task in the job.")
    round: int = Field(description="Round of the job.")
    ordinal: int = Field(description="Index in the round.")
    config_key: str = Field(description="Config as applied, as JSON text.")
    asked_key: str = Field(description="Config as proposed by the tuner, as JSON text.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless the outcome is ok.")
    message: str = Field(description="Error message, if it failed.")
    build_sec: float = Field(description="Seconds of the build.")
    run_sec: float = Field(description="Seconds of the measurement.")
    measured_at: float = Field(description="Time of measurement, Unix seconds of the worker's clock.")
    record_id: str | None = Field(description="Record of the trial.")


class Event(Output):
    """An event of the job."""

    seq: int = Field(description="Number within the job, from 1, without gaps.")
    kind: str = Field(description="Kind of the event.")
    data: dict[str, Any] = Field(description="Details, by kind.")
    created_at: float = Field(description="Time of the event, Unix seconds.")
