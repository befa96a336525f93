"""Store arrays in a file by position: tensor names come from strangers, so they cannot name a zip's entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidInputError


def save_arrays(path: Path, arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays to ``path`` (ending in .npz); dtypes that numpy itself lacks keep their name."""
    dtypes = json.dumps([str(array.dtype) for array in arrays])
    plain = {
        str(i): np.ascontiguousarray(a).reshape(a.shape).view(np.uint16) if str(a.dtype) == "bfloat16" else a
        for i, a in enumerate(arrays)
    }
    np.savez(path, dtypes=np.array(dtypes), **plain)  # type: ignore[arg-type]


def load_arrays(path: Path | str) -> list[NDArray[Any]]:
    """Read what `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as file:
        dtypes = json.loads(str(file["dtypes"]))
        return [
            file[str(i)].view(numpy_dtype(name)) if name == "bfloat16" else file[str(i)]
            for i, name in enumerate(dtypes)
        ]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype of that name; ``bfloat16`` needs the package ml_dtypes.

    Raises:
        InvalidInputError: If no dtype has this name.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise InvalidInputError(
                "dtype bfloat16 needs the package ml_dtypes", code="unsupported-dtype"
            ) from None
        dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    try:
        return np.dtype(name)
    except TypeError:
        raise InvalidInputError(f"numpy has no dtype {name!r}", code="unsupported-dtype") from None
