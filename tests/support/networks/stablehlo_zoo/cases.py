"""The table of JAX functions, and inputs that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}

_RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return _RNG.standard_normal(shape, dtype=np.float32)


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> Any:
    return _RNG.integers(low, high, shape).astype(dtype)


def add(name: str, function: Callable[..., Any], *inputs: Any) -> None:
    assert name not in CASES, name
    CASES[name] = (function, inputs)


X, Y = normal(2, 3, 4), normal(2, 3, 4)
POSITIVE = np.abs(X) + np.float32(0.1)
IMAGE = normal(2, 9, 8, 6)
WHOLE, ABOVE = integers(-5, 6, 2, 3, 4), integers(1, 6, 2, 3, 4)
TABLE = jnp.asarray(normal(10, 5))
ROWS = integers(-12, 12, 2, 3)
