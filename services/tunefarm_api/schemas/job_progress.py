"""Schemas of how far a job is, and of its limits."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Output


class Budget(Output):
    """The job's limits; null if not set. A job without a search has none."""

    trials: int | None = Field(None, description="Number of trials over all tasks, failed ones included.")
    wall_sec: float | None = Field(
        None,
        description="Seconds of search. If there is a `job_sec`, what of it is left for the search, once that is known, or the "
        "user's own limit, if that is smaller.",
    )
    job_sec: float | None = Field(None, description="Seconds of the whole job.")
    patience_trials: int | None = Field(None, description="Trials in a row without a better kernel.")
    min_gain_per_min: float | None = Field(
        None, description="Least expected reduction of the model's latency per minute, as a share of it."
    )


class Progress(Output):
    """Progress of the job. The current phase may add members."""

    model_config = ConfigDict(extra="allow")

    phase: str = Field(description="Phase; usually the state.")
    tasks_total: int = Field(description="Number of tuning tasks of the model; 0 until they are extracted.")
    tasks_with_record: int = Field(description="Number of tasks with at least one working config.")
    alternatives_total: int = Field(
        0, description="Those of `tasks_total` that belong to other algorithms, which may replace kernels."
    )
    alternatives_with_record: int = Field(0, description="Those of `tasks_with_record` that do.")
    trials: int = Field(description="Number of trials so far.")
    failures: int = Field(description="Number of failed trials.")
    best_latency_sec: float | None = Field(
        description="Sum of the best kernel times, weighted by calls per inference; null until each task has one."
    )
    tuned_sec: float = Field(description="Seconds of search spent.")
    budget: Budget = Field(description="Budget of the search.")


EXAMPLE_BUDGET: dict[str, Any] = {
    "trials": None,
    "wall_sec": 600.0,
    "job_sec": None,
    "patience_trials": 200,
    "min_gain_per_min": None,
}
