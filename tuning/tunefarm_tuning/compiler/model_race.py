"""Is the tuned network slower than the untuned one? Asked again where the machine leaves it in doubt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tunefarm_tuning.compiler.model_check import time_models
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.reference.onnx_runtime import Reference

_LOOKS = 3
_SLOW_SEC = 1.0  # networks that take longer have two looks
_LEAST_SAMPLES_TO_REJECT = 5
_UNDISTURBED_PERCENT = 25.0


def race_models(
    device: DeviceRun,
    libraries: Mapping[str, Path],
    reference: Reference | None,
    inputs: Path,
    *,
    threads: int,
    limits: CompileLimits,
    on_round: Callable[[float], None],
) -> tuple[dict[str, Latency], bool]:
    """Time networks in turns; say whether ``"tuned"`` is slower than ``"untuned"``, by more than `limits` allow.

    It is where the medians say so, and the quickest quarters too: other work on the machine makes samples longer, never
    shorter. Where the two disagree, or the samples were few, all are timed again; the last time decides by medians.

    Args:
        device: Where they run.
        libraries: ``"untuned"``, and ``"tuned"`` where there is another.
        reference: ONNX Runtime, to be timed beside them.
        inputs: Of the inferences.
        threads: Of all of them.
        limits: Of a call, and of being slower.
        on_round: Told what share of a look is done.

    Raises:
        RunFailed: If one crashed or was over its time.
    """
    for look in range(_LOOKS):
        latency = time_models(
            device,
            libraries,
            reference,
            inputs,
            threads=threads,
            limits=limits,
            on_round=on_round,
            least_samples=_LEAST_SAMPLES_TO_REJECT if look else 1,
        )
        if "tuned" not in latency:
            return latency, False
        slower = is_slower(latency["tuned"], latency["untuned"], limits.model_ratio)
        if slower is not None:
            return latency, slower
        if look and latency["tuned"].median_sec > _SLOW_SEC:
            break
    return latency, True


def is_slower(tuned: Latency, untuned: Latency, ratio: float) -> bool | None:
    """Return whether `tuned` takes more than `ratio` times as long as `untuned`; None where that is in doubt."""
    if tuned.median_sec <= ratio * untuned.median_sec:
        return False
    few = min(len(tuned.samples_sec), len(untuned.samples_sec)) < _LEAST_SAMPLES_TO_REJECT
    return None if few or _undisturbed_sec(tuned) <= ratio * _undisturbed_sec(untuned) else True


def _undisturbed_sec(latency: Latency) -> float:
    return float(np.percentile(latency.samples_sec, _UNDISTURBED_PERCENT))
