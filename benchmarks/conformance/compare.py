"""How an output is compared with the expected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.untrusted_text import clean

_HALF_RTOL = 2 * float(np.finfo(np.float16).eps)
"""The cases' own tolerance of 0.001 is a single step of float16, which any other order of a sum may exceed."""


def differs(array: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float) -> str:
    """Return in what an output differs from the expected one, as ONNX's own runner compares them (float16: two steps); empty if it does not."""
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return f"{array.dtype}{list(array.shape)}, and not {expected.dtype}{list(expected.shape)}"
    if expected.dtype == np.float16:
        rtol = max(rtol, _HALF_RTOL)
    try:
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol)
    except AssertionError as error:
        return clean(" ".join(str(error).split()), 300)
    return ""


def first_difference(
    arrays: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], rtol: float, atol: float
) -> str | None:
    """Return which of the outputs differs first, and in what; None if none does."""
    for number, (array, value) in enumerate(zip(arrays, expected, strict=True)):
        if difference := differs(np.asarray(array), value, rtol, atol):
            return f"output {number}: {difference}"
    return None
