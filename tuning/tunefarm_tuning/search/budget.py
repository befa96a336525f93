"""Budgets: how much a tuning run may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run: the first limit reached ends it. At least one is set.

    Attributes:
        trials: Number of trials over all tasks, failed ones included. Confirmations do not count.
        wall_sec: Seconds of search and of confirmations, without waiting for a device.
        patience_trials: Stop after this many trials in a row, over all tasks, without a better kernel.
        min_gain_per_min: Stop when a minute of search is expected to lower the model's latency by less than this share
            (0.01: one percent). It applies after every task's first round.
    """

    trials: int | None = None
    wall_sec: float | None = None
    patience_trials: int | None = None
    min_gain_per_min: float | None = None

    def __post_init__(self) -> None:
        limits = self.to_json()
        if all(value is None for value in limits.values()):
            raise InvalidInputError(
                f"the budget is empty: set at least one of {', '.join(field.name for field in fields(self))}",
                code="invalid-budget",
            )
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise InvalidInputError(
                    f"budget: {name} must be above zero, not {value}", code="invalid-budget", limit=name
                )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        """Read what `to_json` wrote."""
        return cls(**{field.name: data.get(field.name) for field in fields(cls)})

    def exhausted_by(
        self,
        *,
        trials: int,
        wall_sec: float,
        trials_since_improvement: int,
        gain_per_min: float | None = None,
    ) -> str | None:
        """Return the name of the limit that is reached by what all tasks have spent, or None."""
        if self.trials is not None and trials >= self.trials:
            return "trials"
        if self.wall_sec is not None and wall_sec >= self.wall_sec:
            return "wall_sec"
        if self.patience_trials is not None and trials_since_improvement >= self.patience_trials:
            return "patience_trials"
        if self.min_gain_per_min is not None and gain_per_min is not None:
            return "min_gain_per_min" if gain_per_min < self.min_gain_per_min else None
        return None
