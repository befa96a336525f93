"""How much a tuning run may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run; whichever is reached first ends it. At least one is set.

    Attributes:
        trials: Candidates measured or failed, over all tasks.
        wall_sec: Wall-clock of searching; waiting for a device is not counted.
        patience_trials: Stop after this many trials in a row, over all tasks, without a better kernel.
    """

    trials: int | None = None
    wall_sec: float | None = None
    patience_trials: int | None = None

    def __post_init__(self) -> None:
        limits = {"trials": self.trials, "wall_sec": self.wall_sec, "patience_trials": self.patience_trials}
        if all(value is None for value in limits.values()):
            raise InvalidInputError(
                "the budget is empty: set at least one of trials, wall_sec, patience_trials",
                code="invalid-budget",
            )
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise InvalidInputError(
                    f"budget: {name} is {value}, but must be above zero", code="invalid-budget", limit=name
                )

    def to_json(self) -> dict[str, Any]:
        return {"trials": self.trials, "wall_sec": self.wall_sec, "patience_trials": self.patience_trials}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        return cls(
            trials=data.get("trials"),
            wall_sec=data.get("wall_sec"),
            patience_trials=data.get("patience_trials"),
        )

    def exhausted_by(self, *, trials: int, wall_sec: float, trials_since_improvement: int) -> str | None:
        """Return the name of the limit that is reached, or None."""
        if self.trials is not None and trials >= self.trials:
            return "trials"
        if self.wall_sec is not None and wall_sec >= self.wall_sec:
            return "wall_sec"
        if self.patience_trials is not None and trials_since_improvement >= self.patience_trials:
            return "patience_trials"
        return None
