"""Choose the next part of the GPU benchmark: one that is missing and fits into the remaining time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNTUNED, TORCH, COMPILED, TUNE, TUNED = "untuned", "torch", "torch_compile", "tune", "tuned"
PARTS = (UNTUNED, TORCH, COMPILED, TUNE, TUNED)

NEEDS_SEC: Mapping[str, float] = {UNTUNED: 60.0, TORCH: 30.0, COMPILED: 150.0, TUNED: 30.0}
"""Seconds that have to be left for a part to be begun: one that is cut off has to be done all over."""
COMPILE_SEC = 120.0
"""What a job takes after its search: every kernel checked, the network built, timed and packed."""
LEAST_TUNE_SEC = 60.0
_ENOUGH = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part of one network. `tune_sec` is how long to search, 0 for the other parts."""

    part: str
    network: str
    dtype: str
    tune_sec: float = 0.0


def next_step(
    lines: Sequence[Mapping[str, Any]],
    pairs: Sequence[tuple[str, str]],
    *,
    tune_sec: float,
    left_sec: float,
    others_sec: float = 0.0,
    skipped: Collection[tuple[str, str, str]] = (),
) -> Step | None:
    """Return the first missing part that fits into the remaining time.

    Args:
        lines: What is known; failures do not count as done.
        pairs: Networks and dtypes, in order of importance.
        tune_sec: Seconds of search of each in the end, all runs together.
        left_sec: Of this run.
        others_sec: What a job may take on top of `COMPILE_SEC`, to time others.
        skipped: Parts that failed in this run, or that this machine cannot do, with network and dtype.
    """
    for network, dtype in pairs:
        for part in PARTS:
            if (part, network, dtype) in skipped or _is_done(lines, part, network, dtype, tune_sec):
                continue
            if part == TUNE:
                missing = tune_sec - searched_sec(lines, network, dtype)
                seconds = min(missing, left_sec - COMPILE_SEC - others_sec)
                if seconds >= min(missing, LEAST_TUNE_SEC):
                    return Step(part=part, network=network, dtype=dtype, tune_sec=seconds)
            elif left_sec >= NEEDS_SEC[part]:
                return Step(part=part, network=network, dtype=dtype)
    return None


def searched_sec(lines: Sequence[Mapping[str, Any]], network: str, dtype: str) -> float:
    """Return how long a network was searched for so far."""
    return sum(float(line["tune_sec"]) for line in of(lines, TUNE, network, dtype))


def of(lines: Sequence[Mapping[str, Any]], part: str, network: str, dtype: str) -> list[Mapping[str, Any]]:
    """Return the lines of a part, in the order of its runs."""
    wanted = {"kind": part, "network": network, "dtype": dtype}
    return [line for line in lines if wanted.items() <= line.items() and "failed" not in line]


def _is_done(
    lines: Sequence[Mapping[str, Any]], part: str, network: str, dtype: str, tune_sec: float
) -> bool:
    measured = of(lines, part, network, dtype)
    if part == TUNE:
        return searched_sec(lines, network, dtype) >= _ENOUGH * tune_sec
    if part == TUNED:  # of the newest artifact, if there is one
        searches = len(of(lines, TUNE, network, dtype))
        return not searches or any(line["searches"] == searches for line in measured)
    return bool(measured)
