"""What a job is asked for, as the server takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def terms_of(
    target: str | Mapping[str, Any] | None,
    device_key: str | None,
    trials: int | None,
    seconds: float | None,
    patience: int | None,
    min_gain: float | None,
    tuner: str | None,
    seed: int | None,
    priority: int | str | None,
    options: Mapping[str, Any] | None,
    precision: str | None,
) -> dict[str, Any]:
    """Return what is asked for as the server takes it, without what is left out."""
    if precision is not None:
        options = {**(options or {}), "precision": precision}
    optional = {
        "target": target,
        "device_key": device_key,
        "tuner": tuner,
        "seed": seed,
        "priority": priority,
        "options": options,
    }
    return {
        "budget": budget_of(trials, seconds, patience, min_gain),
        **{name: value for name, value in optional.items() if value is not None},
    }


def budget_of(
    trials: int | None, seconds: float | None, patience: int | None, min_gain: float | None
) -> dict[str, float]:
    """Return the limits that are set, by the server's names."""
    budget = {
        "trials": trials,
        "wall_sec": seconds,
        "patience_trials": patience,
        "min_gain_per_min": min_gain,
    }
    return {name: limit for name, limit in budget.items() if limit is not None}


def wall_sec_of(seconds: float | None, minutes: float | None) -> float | None:
    """Return the time that both give together; None where neither is given."""
    return None if seconds is None and minutes is None else (seconds or 0.0) + 60.0 * (minutes or 0.0)
