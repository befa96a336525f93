"""What is known of loop nests before a task's first trial: a model fitted to trials of other workloads.

It ships with the package. `benchmarks/prior/` collects its trials and fits it, on workloads that no benchmark measures.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Protocol

from tunefarm_tuning.cost_model.base import FloatArray

FOLDER = Path(__file__).with_name("priors")


class Prior(Protocol):
    """Expects, of each row of nest features, log2 of its throughput relative to the best of its task."""

    names: tuple[str, ...]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return one expectation per row. Shape ``(n,)``."""
        ...


def path_of(names: tuple[str, ...]) -> Path:
    """Return where the prior for the nest features `names` is, or would be."""
    structure = names[0].partition(".")[0]
    return FOLDER / f"{structure.lower()}.ubj"


@cache
def load_prior(names: tuple[str, ...]) -> Prior | None:
    """Return the prior for the nest features `names`; None where none is shipped for them."""
    if not names:
        return None
    path = path_of(names)
    if not path.is_file():
        return None
    from tunefarm_tuning.cost_model.xgb import LoadedModel

    prior = LoadedModel(path)
    return prior if prior.names == names else None
