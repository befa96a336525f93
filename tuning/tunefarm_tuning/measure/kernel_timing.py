"""Timing two kernels against each other, without spending long on one that is hopelessly slow."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDS = 5
_SAMPLE_SEC = 0.01
_CLEAR_RATIO = 3.0
_CLEAR_SEC = 1e-3
_MAX_CALLS = 1000

METHOD = (
    f"Each kernel by itself, on random inputs, tuned and untuned in turns: {_ROUNDS} samples each. A sample is the mean of "
    f"as many calls in a row as take {_SAMPLE_SEC * 1e3:g} ms (1 to {_MAX_CALLS}). An untuned kernel whose first call "
    f"takes over {_CLEAR_SEC * 1e3:g} ms and over {_CLEAR_RATIO:g} times the tuned one's is not timed again: that call is "
    f"its only sample, and so it is of tasks that had nothing to be compared with. By itself a kernel finds its data in the caches more often than within the network."
)
"""How `time_both` measures, for people."""


def time_both(
    time_tuned: Callable[[int], float],
    tuned_sec: float,
    time_untuned: Callable[[int], float],
    untuned_sec: float,
) -> tuple[list[float], list[float]]:
    """Return samples of both, taken in turns so that a busy machine slows both.

    A plain convolution takes a hundred times as long as a tuned one: where the first call is that clear, it
    is the only sample.

    Args:
        time_tuned: Returns seconds per call, from the mean of so many.
        tuned_sec: What one call took.
        time_untuned: As `time_tuned`.
        untuned_sec: As `tuned_sec`.
    """
    clear = untuned_sec > _CLEAR_RATIO * tuned_sec and untuned_sec > _CLEAR_SEC
    tuned: list[float] = []
    untuned: list[float] = [untuned_sec] if clear else []
    for _ in range(_ROUNDS):
        tuned.append(time_tuned(_calls(tuned_sec)))
        if not clear:
            untuned.append(time_untuned(_calls(untuned_sec)))
    return tuned, untuned


def _calls(call_sec: float) -> int:
    return max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(call_sec, 1e-9))))
