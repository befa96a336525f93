"""Draw inputs that a network runs on, and whose outputs tell something."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.reference.runtime import run_session
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.workload.task import TensorSpec

Arrays = list[NDArray[Any]]

_SCALARS = (0.0, 1.0, 100.0, 10_000.0)
_MOST_SCALARS = 3
_TRIALS_SEC = 5.0
"""Other scalars are tried for no longer than this."""


def run_on_drawn(
    session: onnxruntime.InferenceSession,
    specs: Sequence[TensorSpec],
    seed: int,
    kind: InputKind,
    limits: Mapping[str, int],
) -> tuple[str, Arrays, Arrays]:
    """Run a network on random arrays; if that fails, with all integers below 2, then with all of them 0, then with all 1.

    A random index may be out of range, which 0 never is; a divisor must not be 0. Floats that are alone, such as the bounds of what is
    searched for, are drawn again where an output would be NaN or the same everywhere.

    Args:
        session: The network.
        specs: Its inputs.
        seed: Equal seeds give equal arrays.
        kind: How floats are drawn.
        limits: How many values an integer input may have, by name (`vocabulary.index_limits`).

    Returns:
        How integers were drawn (``"random"``, ``"zero"`` or ``"one"``), the inputs, and the outputs.

    Raises:
        InvalidModelError: ``"reference-failed"``: the network runs on none of them.
    """
    arrays = random_inputs(specs, seed=seed, kind=kind)
    attempts = [("random", arrays)]
    if limits:
        attempts.insert(0, ("random", random_inputs(specs, seed=seed, kind=kind, sizes=limits)))
    if any(array.dtype.kind in "iu" for array in arrays):
        for integers, value in (("zero", 0), ("one", 1)):
            whole = [np.full_like(a, value) if a.dtype.kind in "iu" else a for a in arrays]
            attempts.append((integers, whole))
    failure: InvalidModelError | None = None
    for integers, attempt in attempts:
        try:
            outputs = run_session(session, [spec.name for spec in specs], attempt)
        except InvalidModelError as error:
            failure = failure or error
        else:
            return integers, *_with_other_scalars(session, specs, attempt, outputs)
    assert failure is not None
    raise failure


def _with_other_scalars(
    session: onnxruntime.InferenceSession, specs: Sequence[TensorSpec], arrays: Arrays, outputs: Arrays
) -> tuple[Arrays, Arrays]:
    """Return the inputs and outputs with the scalars on which the outputs have the most distinct numbers."""
    scalars = [i for i, array in enumerate(arrays) if array.size == 1 and array.dtype.kind == "f"]
    if not 0 < len(scalars) <= _MOST_SCALARS or len(scalars) == len(arrays) or not _is_mute(outputs):
        return arrays, outputs
    best, most = (arrays, outputs), _count_distinct(outputs)
    started = time.monotonic()
    for values in product(_SCALARS, repeat=len(scalars)):
        if time.monotonic() - started > _TRIALS_SEC:
            break
        attempt = list(arrays)
        for position, value in zip(scalars, values, strict=True):
            attempt[position] = np.full_like(arrays[position], value)
        try:
            results = run_session(session, [spec.name for spec in specs], attempt)
        except InvalidModelError:
            continue
        distinct = _count_distinct(results)
        if distinct > most:
            best, most = (attempt, results), distinct
    return best


def _is_mute(outputs: Arrays) -> bool:
    """Return whether an output is not a number somewhere, or the same everywhere."""
    return any(
        not np.isfinite(array).all() or array.min() == array.max()
        for array in outputs
        if array.size > 1 and array.dtype.kind in "fiu"
    )


def _count_distinct(outputs: Arrays) -> int:
    return sum(
        int(np.unique(array[np.isfinite(array)]).size) for array in outputs if array.dtype.kind in "fiu"
    )
