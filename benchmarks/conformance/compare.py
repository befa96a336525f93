"""How an output is compared with the expected one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.untrusted_text import clean


def differs(array: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float) -> str:
    """Return in what an output differs from the expected one, as ONNX's own runner compares them; empty if it does not."""
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return f"{array.dtype}{list(array.shape)}, and not {expected.dtype}{list(expected.shape)}"
    try:
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol)
    except AssertionError as error:
        return clean(" ".join(str(error).split()), 300)
    return ""
