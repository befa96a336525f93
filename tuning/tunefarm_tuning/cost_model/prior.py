"""Priors: models of loop nests that predict before a task's first trial, fitted to trials of other workloads.

They ship with the package. `benchmarks/prior/` collects the trials, of workloads that no benchmark measures, and fits them.
For GPUs, of which no trials were collected yet, a static estimate takes their place (`cost_model.gpu_prior`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from tunefarm_tuning.cost_model.base import FloatArray
from tunefarm_tuning.cost_model.gpu_prior import StaticGpuPrior

FOLDER = Path(__file__).with_name("priors")

Of = Literal["throughput", "trial_sec"]
"""Predicted quantities: the throughput relative to the task's best, or the seconds of the trial."""


class Prior(Protocol):
    """Predicts log2 of a quantity for each row of nest features, up to a constant of the task."""

    names: tuple[str, ...]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return one prediction per row. Shape ``(n,)``."""
        ...


def path_of(names: tuple[str, ...], of: Of) -> Path:
    """Return the path of the prior for the nest features `names`, whether or not it exists."""
    structure = names[0].partition(".")[0]
    return FOLDER / f"{structure.lower()}.{of}.ubj"


@cache
def load_prior(names: tuple[str, ...], of: Of) -> Prior | None:
    """Return the prior for the shared features `names`; None if there is none for them."""
    if not names:
        return None
    path = path_of(names, of)
    if not path.is_file():
        return StaticGpuPrior(names) if of == "throughput" and StaticGpuPrior.applies(names) else None
    from tunefarm_tuning.cost_model.xgb import LoadedBooster

    prior = LoadedBooster(path)
    return prior if prior.names == names else None
