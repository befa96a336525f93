"""Schemas of jobs, their tasks, trials and events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_api.schemas.peak import Roofline
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.states.job import JobState
from tunefarm_text.job_terms import DEFAULT_TUNER, HELP

Whole = Annotated[int, Field(strict=True)]
Priority = Whole | Literal["low", "normal", "high"]


class BudgetIn(Input):
    """How much the job may spend: the limit that is reached first ends the search. At least one is needed."""

    trials: Whole | None = Field(None, description=HELP["trials"])
    wall_sec: Annotated[float, Field(strict=True)] | None = Field(None, description=HELP["seconds"])
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
    """Further options."""

    round_size: Whole | None = Field(
        None, description="Candidates of one tuning step; the server's default where it is left out."
    )
    precision: str | None = Field(None, max_length=100, description=f"{HELP['precision']} For CPUs.")


class JobCheck(Input):
    """A request to tune, without the model."""

    model_config = ConfigDict(json_schema_extra={"examples": [_TERMS]})

    budget: BudgetIn = Field(description="How much the search may spend.")
    target: Annotated[str, Field(max_length=2000)] | dict[str, Any] | None = Field(
        None, description=HELP["target"]
    )
    device_key: str | None = Field(None, max_length=200, description=HELP["device_key"])
    tuner: str = Field(DEFAULT_TUNER, max_length=100, description=HELP["tuner"])
    seed: Whole = Field(0, description=HELP["seed"])
    priority: Priority = Field(0, description=HELP["priority"])
    options: JobOptions = Field(
        JobOptions(round_size=None, precision=None), description="How the search goes about it."
    )


class JobChange(Input):
    """What to change of a job."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"priority": "high", "budget": {"wall_sec": 1200}}]}
    )

    priority: Priority | None = Field(None, description=HELP["priority"])
    budget: BudgetIn | None = Field(
        None, description="Limits to change; null removes one, what is left out stays."
    )


class JobCreate(JobCheck):
    """A request to tune a model."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model_id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd", **_TERMS}]}
    )

    model_id: str = Field(max_length=100, description="The model; it must be ready.")


class CheckedJob(Output):
    """What the request comes to."""

    device_key: str = Field(description="The pool that would measure.")
    target: dict[str, Any] = Field(description="What would be compiled for, as TVM's target JSON.")
    target_key: str = Field(description="The target as text; records are kept under it.")


class Budget(Output):
    """The job's limits; null where one is not set."""

    trials: int | None = Field(description="Candidates, measured or failed, over all tasks.")
    wall_sec: float | None = Field(description="Seconds of searching.")
    patience_trials: int | None = Field(description="Trials in a row without a better kernel.")
    min_gain_per_min: float | None = Field(
        None, description="Share of the model's latency that a minute must be expected to win."
    )


class Progress(Output):
    """How far the job is. The present phase may report further members."""

    model_config = ConfigDict(extra="allow")

    phase: str = Field(description="What it is doing; most often its state.")
    tasks_total: int = Field(description="Tuning tasks of the model; 0 until they are extracted.")
    tasks_with_record: int = Field(description="Tasks that have at least one working kernel.")
    trials: int = Field(description="Candidates so far.")
    failures: int = Field(description="Candidates that failed.")
    best_latency_sec: float | None = Field(
        description="The kernels' best times, by how often each runs; null until each task has one."
    )
    tuned_sec: float = Field(description="Seconds spent searching.")
    budget: Budget = Field(description="What may be spent.")


_BUDGET: dict[str, Any] = {
    "trials": None,
    "wall_sec": 600.0,
    "patience_trials": 200,
    "min_gain_per_min": None,
}


class Job(Output):
    """A tuning job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "job_01k8z40a8e5q7r9s1t3v5w7x9z",
                    "model_id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 8},
                    "target_key": "llvm -mcpu=znver5 -num-cores=8",
                    "device_key": "epyc",
                    "tuner": "xgb",
                    "seed": 0,
                    "budget": _BUDGET,
                    "options": {"round_size": 8, "precision": "as-model"},
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
                        "trials": 128,
                        "failures": 9,
                        "best_latency_sec": 0.0081,
                        "tuned_sec": 71.5,
                        "budget": _BUDGET,
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

    id: str = Field(description="Its identity.")
    model_id: str = Field(description="The model that is tuned.")
    target: dict[str, Any] = Field(description="What is compiled for, as TVM's target JSON.")
    target_key: str = Field(description="The target as text; records are kept under it.")
    device_key: str = Field(description="The pool that measures.")
    tuner: str = Field(description="The search strategy.")
    seed: int = Field(description="Seed of the search.")
    budget: Budget = Field(description="What may be spent.")
    options: dict[str, Any] = Field(description="Further options.")
    state: JobState = Field(description="Where it stands; `succeeded`, `failed` and `cancelled` are final.")
    error: StoredError | None = Field(description="Why it failed, if it did.")
    cancel_requested: bool = Field(description="Whether somebody asked to stop it.")
    priority: int = Field(description="Jobs with a higher one get devices first.")
    waiting: str | None = Field(
        description="What it waits for, if its present step waits: a device, its turn on one, a worker, or another try."
    )
    started_tuning_at: float | None = Field(description="When the search began, Unix seconds.")
    tuned_sec: float = Field(description="Seconds spent searching.")
    trials: int = Field(description="Candidates so far.")
    failures: int = Field(description="Candidates that failed.")
    trials_since_improvement: int = Field(description="Trials since a kernel was last improved.")
    best_latency_sec: float | None = Field(
        description="The kernels' best times, by how often each runs; null until each task has one."
    )
    eta_sec: float | None = Field(
        None,
        description="For how many more seconds it is expected to search: what is left of the limit that comes first, at the "
        "mean pace so far. null unless it searches, and where it has no limit of time or trials.",
    )
    stop_reason: str | None = Field(
        description="The limit that ended the search, or `exhausted`; null before."
    )
    progress: Progress = Field(description="How far it is.")
    event_seq: int = Field(description="Number of its newest event.")
    artifact_id: str | None = Field(description="Its artifact; null until it succeeded.")
    created_at: float = Field(description="When it was created, Unix seconds.")
    updated_at: float = Field(description="When it last changed, Unix seconds.")
    finished_at: float | None = Field(description="When it ended, Unix seconds.")


class TaskAlternative(Output):
    """That a task is part of another algorithm for kernels of the network. The artifact has whichever is faster."""

    algorithm: str = Field(description="`winograd-4`, say.")
    instead_of: list[str] = Field(description="Workload keys of the kernels that it can take the place of.")
    overhead: float = Field(
        description="The work of the algorithm's other kernels, relative to this one's: an estimate."
    )


class JobTask(Output):
    """One of the job's kernels, and how far its tuning is."""

    position: int = Field(description="Its place among the job's tasks.")
    name: str = Field(description="Its name, from the graph.")
    workload_key: str = Field(description="Content hash of its computation.")
    weight: int = Field(description="How often one inference runs it.")
    alternative: TaskAlternative | None = Field(
        None, description="What it is an alternative to; null for a kernel of the network as it stands."
    )
    counts: bool = Field(
        True,
        description="Whether its time is part of the network's: an alternative that is faster takes its place.",
    )
    trials: int = Field(description="Candidates so far.")
    failures: int = Field(description="Candidates that failed.")
    outcomes: dict[str, int] = Field(description="How many trials ended how.")
    confirmations: int = Field(
        0,
        description="How often its best kernels were measured again, side by side, before the winner was named.",
    )
    best_cost_sec: float | None = Field(description="Its fastest kernel so far, seconds per call.")
    untuned_cost_sec: float | None = Field(
        description="The kernel as TVM makes it untuned, seconds per call, when the compiler compared it with the tuned "
        "one that is in the artifact; null where it did not."
    )
    flops: float | None = Field(
        None, description="Floating-point operations of one call; null where they are not known."
    )
    roofline: Roofline | None = Field(
        None,
        description="How near its fastest kernel is to what its device can do; null where none works yet, or it does no "
        "floating-point operations.",
    )
    spent_sec: float = Field(description="Seconds spent on it.")
    rounds: int = Field(description="Rounds so far.")
    exhausted: bool = Field(description="Whether nothing is left to try.")
    history: list[list[Any]] = Field(description="Pairs of trials and best cost, one per round.")


class Trial(Output):
    """One candidate, and how it ended."""

    id: str = Field(description="Its identity.")
    position: int = Field(description="Which of the job's tasks it is of.")
    round: int = Field(description="The round of the job.")
    ordinal: int = Field(description="Its place in the round.")
    config_key: str = Field(description="The config as it was applied, as JSON text.")
    asked_key: str = Field(description="The config as the tuner asked for it, as JSON text.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless ok.")
    message: str = Field(description="What went wrong, where something did.")
    build_sec: float = Field(description="Seconds of building.")
    run_sec: float = Field(description="Seconds of measuring.")
    measured_at: float = Field(description="When it was measured, Unix seconds of the worker.")
    record_id: str | None = Field(description="The record that was made of it.")


class Event(Output):
    """Something that happened to the job."""

    seq: int = Field(description="Its number within the job, from 1, without gaps.")
    kind: str = Field(description="What happened.")
    data: dict[str, Any] = Field(description="More about it; depends on the kind.")
    created_at: float = Field(description="When, Unix seconds.")
