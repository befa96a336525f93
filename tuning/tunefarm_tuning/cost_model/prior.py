"""What is known of loop nests before a task's first trial: models fitted to trials of other workloads.

They ship with the package. `benchmarks/prior/` collects their trials and fits them, on workloads that no benchmark
measures.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from tunefarm_tuning.cost_model.base import FloatArray

FOLDER = Path(__file__).with_name("priors")

Of = Literal["throughput", "trial_sec"]
"""What is expected of a config: its throughput relative to the best of its task, or how long trying it takes."""


class Prior(Protocol):
    """Expects, of each row of nest features, log2 of something, up to a constant that is a task's own."""

    names: tuple[str, ...]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return one expectation per row. Shape ``(n,)``."""
        ...


def path_of(names: tuple[str, ...], of: Of) -> Path:
    """Return where the prior for the nest features `names` is, or would be."""
    structure = names[0].partition(".")[0]
    return FOLDER / f"{structure.lower()}.{of}.ubj"


@cache
def load_prior(names: tuple[str, ...], of: Of) -> Prior | None:
    """Return the prior for the nest features `names`; None where none is shipped for them."""
    if not names:
        return None
    path = path_of(names, of)
    if not path.is_file():
        return None
    from tunefarm_tuning.cost_model.xgb import LoadedModel

    prior = LoadedModel(path)
    return prior if prior.names == names else None
