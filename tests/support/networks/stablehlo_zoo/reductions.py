"""Reductions, sorts and windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stablehlo_zoo.cases import IMAGE, WHOLE, X, add, integers

add(
    "reductions",
    lambda x: (
        x.sum(),
        x.sum(1),
        x.max((0, 2)),
        x.min(-1),
        x.prod(1),
        x.mean((1, 2), keepdims=True),
        jnp.var(x, -1),
    ),
    X,
)
add("reductions of integers", lambda x: (x.sum(), x.max((0, 2)), x.min(-1), x.prod(1)), WHOLE)
add("reduction from a number", lambda x: lax.reduce(x, np.float32(0.5), lax.max, (1,)), X)
add(
    "softmax and its like", lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, 1), jax.nn.logsumexp(x, 0)), X
)
add("layer norm", lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5), X)
add(
    "argmax",
    lambda x, i: (
        jnp.argmax(x, 1),
        jnp.argmax(x > 0, 1),
        jnp.argmin(x > 0, 1),
        jnp.argmin(x, -1),
        jnp.argmax(x),
        jnp.argmax(i, 2),
        jnp.argmin(i, 0),
    ),
    X,
    WHOLE,
)
add(
    "sorts",
    lambda x, i: (jnp.sort(x), jnp.argsort(x, 1), jnp.sort(i, 0, descending=True), lax.sort_key_val(x, i)),
    X,
    WHOLE,
)
add("sort of equals, which stay in order", lambda i: jnp.argsort(i, 1, stable=True), integers(0, 3, 4, 20))
add("the largest few", lambda x: lax.top_k(x, 2), X)
add(
    "running sums",
    lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 2), lax.cummax(x, 0), lax.cumsum(x, 1, reverse=True)),
    X,
)
for name, reducer, start in (("max", lax.max, -np.inf), ("sum", lax.add, 0.0), ("min", lax.min, np.inf), ("product", lax.mul, 1.0)):  # fmt: skip
    for form, options in {
        "in steps": {"window": (1, 2, 2, 1), "steps": (1, 2, 2, 1), "padding": "VALID"},
        "padded": {"window": (1, 3, 3, 1), "steps": (1, 2, 1, 1), "padding": "SAME"},
        "padded by more than a window": {"window": (1, 3, 2, 1), "steps": (1,) * 4, "padding": ((0, 0), (4, 1), (0, 3), (0, 0))},
        "of a part": {"window": (1, 2, 2, 1), "steps": (1,) * 4, "padding": ((0, 0), (-1, 1), (0, -2), (0, 0))},
        "with holes": {"window": (1, 3, 2, 1), "steps": (1, 2, 1, 1), "padding": "VALID", "window_dilation": (1, 2, 2, 1)},
        "of a spaced image": {"window": (1, 3, 2, 1), "steps": (1, 2, 1, 1), "padding": "VALID", "base_dilation": (1, 2, 2, 1)},
        "along all dimensions": {"window": (2, 2, 2, 2), "steps": (1, 2, 1, 2), "padding": "VALID"},
        "along one": {"window": (1, 1, 1, 3), "steps": (1,) * 4, "padding": "SAME"},
    }.items():  # fmt: skip

        def pool(x: Any, o: Any = options, f: Any = reducer, s: Any = start) -> Any:
            more = {key: value for key, value in o.items() if key.endswith("dilation")}
            return lax.reduce_window(x, s, f, o["window"], o["steps"], o["padding"], **more)

        add(f"window {name} {form}", pool, IMAGE)
add(
    "window from a number",
    lambda x: lax.reduce_window(x, 0.5, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    IMAGE,
)
add("window of integers", lambda x: lax.reduce_window(x, 0, lax.add, (1, 2, 2), (1, 1, 1), "VALID"), WHOLE)
add("running sum as a window", lambda x: (
    lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), ((0, 0), (2, 0), (0, 0))),
    lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), ((0, 0), (0, 2), (0, 0))),
), X)  # fmt: skip
add(
    "mean of what is there",
    lambda x: (
        lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    ),
    IMAGE,
)
