"""What is known of loop nests before a task's first trial: a model fitted to trials of other workloads.

It ships with the package. `benchmarks/prior/` collects its trials and fits it, on workloads that no benchmark measures.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Protocol

from tunefarm_tuning.cost_model.base import FloatArray

_FOLDER = Path(__file__).with_name("priors")


class Prior(Protocol):
    """Expects, of each row of nest features, log2 of its throughput relative to the best of its task."""

    names: tuple[str, ...]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return one expectation per row. Shape ``(n,)``."""
        ...


@cache
def load_prior(names: tuple[str, ...]) -> Prior | None:
    """Return the prior for the nest features `names`; None where none is shipped for them."""
    if not names:
        return None
    structure = names[0].partition(".")[0]
    path = _FOLDER / f"{structure.lower()}.ubj"
    if not path.is_file():
        return None
    from tunefarm_tuning.cost_model.xgb import LoadedModel

    prior = LoadedModel(path)
    return prior if prior.names == names else None
