"""Sweeps, as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.artifacts import Speedup
from tunefarm.client.results.models import Problem
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities
from tunefarm_text.job_terms import RUNTIMES


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepCell(Shown, Result):
    """A combination of a sweep: a model, a pool and a precision.

    Attributes:
        model_id: None of a file that the farm did not take.
        job_id: Its job; None if the combination was refused, for the reason in `error`.
        state: State of the job, or ``refused``.
        budget: The job's share of the budget.
        is_measured: Whether `latency_sec` is the network's, and not the sum of its kernels' best times.
        is_disturbed: Whether other work disturbed its timing so much that no ratio is known within a factor of three.
        over_runtime: How many times as fast as the fastest other runtime, whose name is `runtime`.
        is_fastest: Whether its artifact is clearly the fastest of its model on its pool.
    """

    position: int
    model_id: str | None = None
    model_name: str = ""
    device_key: str = ""
    precision: str = ""
    job_id: str | None = None
    state: str = ""
    error: Problem | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 0
    tuned_sec: float = 0.0
    latency_sec: float | None = None
    is_measured: bool = False
    is_disturbed: bool = False
    over_untuned: Speedup | None = None
    over_runtime: Speedup | None = None
    runtime: str | None = None
    is_fastest: bool = False
    finished_at: float | None = None

    @property
    def latency_text(self) -> str:
        """The latency as text, and whether it is an estimate, or disturbed."""
        return quantities.doubted_latency(
            self.latency_sec, is_measured=self.is_measured, is_disturbed=self.is_disturbed
        )

    @property
    def over_runtime_text(self) -> str:
        """How many times as fast as the fastest other runtime it is; that one's name follows."""
        if self.over_runtime is None:
            return quantities.NONE
        return quantities.over(self.over_runtime.text, RUNTIMES.get(self.runtime or "", self.runtime or ""))

    def summary(self) -> Mapping[str, str]:
        """Return the combination's row in a notebook: column name to text."""
        return {
            "": self.model_name,
            "pool": self.device_key,
            "precision": self.precision,
            "state": self.state,
            "latency": self.latency_text,
            "speed-up over the fastest runtime": self.over_runtime_text if self.over_runtime else "",
            "speed-up over untuned": self.over_untuned.text if self.over_untuned else "",
            "job": self.job_id or "",
            "reason": self.error.message if self.error else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep(Shown, Answer):
    """Several jobs that were asked for together, with one budget.

    Attributes:
        state: ``running``, ``ended`` or ``cancelled``.
        counts: Number of combinations by state.
        model_names: Its models, and files that were not taken.
        budget: Budget of the whole sweep.
        rule: How the jobs share it.
        cells: The combinations; empty in a list of sweeps.
    """

    id: str
    state: str
    counts: Mapping[str, int] = field(default_factory=dict)
    model_names: tuple[str, ...] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    note: str = ""
    created_at: float = 0.0
    finished_at: float | None = None
    rule: str = ""
    cells: tuple[SweepCell, ...] = ()

    @property
    def counts_text(self) -> str:
        """The counts as text: ``2 succeeded, 1 refused``."""
        return ", ".join(f"{count} {state}" for state, count in self.counts.items())

    @property
    def models_text(self) -> str:
        """The first models by name: ``a, b, c and 4 more``."""
        return quantities.some_of(self.model_names) or quantities.NONE

    def summary(self) -> Mapping[str, str]:
        """Return the sweep's facts in a notebook: name to text."""
        return {
            "": self.id,
            "models": self.models_text,
            "state": self.state,
            "jobs": self.counts_text,
            "budget": quantities.budget(self.budget, "sweep"),
            "created": quantities.local_time(self.created_at),
        }
