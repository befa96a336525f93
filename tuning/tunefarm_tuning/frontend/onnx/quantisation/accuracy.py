"""Errors of a quantised network on sample sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session, run_session
from tunefarm_tuning.workload.quantisation import OutputError

Feeds = Mapping[str, NDArray[Any]]
Outputs = list[NDArray[Any]]

USELESS = 1e9
"""The error of an output of another shape, or without a number where there should be one."""


def outputs_on(model: onnx.ModelProto, feeds: Sequence[Feeds]) -> list[Outputs]:
    """Return the outputs of a network on each sample set, in ONNX Runtime without graph optimisations.

    Raises:
        InvalidModelError: reference-failed.
    """
    session = open_session(onnx_bytes(model), 1, optimised=False)
    return [run_session(session, list(each), list(each.values())) for each in feeds]


def output_errors(
    names: Sequence[str], outputs: Sequence[Outputs], expected: Sequence[Outputs]
) -> tuple[OutputError, ...]:
    """Return the error of each output over all sample sets."""
    return tuple(
        _error(name, [each[position] for each in outputs], [each[position] for each in expected])
        for position, name in enumerate(names)
    )


def _error(name: str, arrays: Outputs, expected: Outputs) -> OutputError:
    useless = OutputError(name=name, mean=USELESS, largest=USELESS, largest_abs=USELESS)
    if [array.shape for array in arrays] != [array.shape for array in expected]:
        return useless
    values = np.concatenate([np.ravel(array) for array in arrays])
    wanted = np.concatenate([np.ravel(array) for array in expected])
    if not wanted.size:
        return OutputError(name=name, mean=0.0, largest=0.0, largest_abs=0.0)
    if wanted.dtype.kind != "f":
        differs = values != wanted
        return OutputError(
            name=name,
            mean=float(np.mean(differs)),
            largest=float(np.max(differs)),
            largest_abs=float(np.max(differs)),
        )
    values, wanted = values.astype(np.float64), wanted.astype(np.float64)
    compared = np.isfinite(wanted)
    if not compared.any():
        return OutputError(name=name, mean=0.0, largest=0.0, largest_abs=0.0)
    differences = np.abs(values - wanted)[compared]
    if not np.isfinite(differences).all():
        return useless
    size = float(np.sqrt(np.mean(np.square(wanted[compared])))) or 1.0
    largest = float(np.max(differences))
    return OutputError(
        name=name, mean=float(np.mean(differences)) / size, largest=largest / size, largest_abs=largest
    )
