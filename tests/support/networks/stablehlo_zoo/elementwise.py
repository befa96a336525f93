"""Elementwise operations, and those that give elements another shape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stablehlo_zoo.cases import ABOVE, POSITIVE, WHOLE, X, Y, add, integers

for function in (jnp.abs, jnp.exp, jnp.tanh, jnp.negative, jnp.sign, jnp.floor, jnp.ceil, jnp.sin, jnp.cos, jnp.tan, jnp.cbrt,
            jnp.isfinite, jnp.rint, jnp.arctan, lax.logistic, lax.erf, lax.erfc, jnp.expm1):  # fmt: skip
    add(function.__name__, function, X)
for function in (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt):
    add(f"{function.__name__} of positive", function, POSITIVE)
add("log1p and expm1 near zero", lambda x: (jnp.log1p(x) * 1e4, jnp.expm1(x) * 1e4), X * np.float32(1e-4))
add("erf_inv, by its polynomial", lambda x: lax.erf_inv(jnp.tanh(x)), X)
add("round away from zero", lambda x: lax.round(x * 3, lax.RoundingMethod.AWAY_FROM_ZERO), X)
add("is finite", jnp.isfinite, np.array([1.0, np.inf, -np.inf, np.nan], np.float32))
for function in (
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    jnp.divide,
    jnp.maximum,
    jnp.minimum,
    jnp.arctan2,
    lax.rem,
):
    add(function.__name__, function, X, Y)
add("power", jnp.power, POSITIVE, Y)
for function in (jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.floor_divide, jnp.remainder, lax.div, lax.rem,
            jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor):  # fmt: skip
    add(f"{function.__name__} of integers", function, WHOLE, ABOVE)
add("integers by zero", lambda a, b: (lax.div(a, b), lax.rem(a, b)), WHOLE, ABOVE - 1)
for function in (jnp.equal, jnp.not_equal, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal):
    add(function.__name__, lambda a, b, c, d, f=function: (f(a, b), f(c, d)), X, Y, WHOLE, ABOVE)


def _narrow(a: Any, b: Any) -> Any:
    return (
        a + b, a * b, a - b, lax.div(a, b), lax.rem(a, b), jnp.maximum(a, b), a < b, jnp.where(a < b, a, b), ~a,
        a @ b.T, jnp.sum(a, 0, dtype=a.dtype), jnp.max(a, 1), jnp.argmax(a, 1), jnp.sort(a, 1), a.astype("float32"),
        a << 2, lax.shift_right_logical(a, lax.full_like(a, 3)), lax.shift_right_arithmetic(a, lax.full_like(a, 2)),
        jnp.pad(a, 1), jnp.clip(a, 10, 50), jnp.concatenate([a, b]), jnp.take(a, jnp.array([2, 0]), axis=0),
    )  # fmt: skip


for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
    add(
        f"operators of {kind}",
        _narrow,
        integers(0, 100, 3, 4, dtype=kind),
        integers(1, 100, 3, 4, dtype=kind),
    )
add(
    "shifts of negative numbers",
    lambda a: (a << 3, a >> 2, lax.shift_right_logical(a, lax.full_like(a, 3))),
    WHOLE,
)
add(
    "booleans",
    lambda a: (
        a & ~a, a ^ a[::-1], jnp.all(a, 1), jnp.any(a, (0, 2)), a.astype("int32"), jnp.where(a, a, ~a), jnp.sum(a),
        a == a[::-1], a != a[::-1], jnp.concatenate([a, ~a]), jnp.pad(a, 1), lax.dynamic_update_slice(a, ~a[:1], (1, 0, 0)),
    ),
    X > 0,
)  # fmt: skip
add(
    "activations",
    lambda x: [
        f(x)
        for f in (jax.nn.relu, jax.nn.relu6, jax.nn.elu, jax.nn.leaky_relu, jax.nn.softplus, jax.nn.silu, jax.nn.selu,
                  jax.nn.hard_swish, jax.nn.mish, jax.nn.gelu, jax.nn.log_sigmoid, lambda y: jax.nn.gelu(y, approximate=False))
    ],
    X,
)  # fmt: skip
add(
    "clamp between tensors",
    lambda x, y: (lax.clamp(-jnp.abs(y), x, jnp.abs(y)), jnp.clip(x, -0.5, 0.5)),
    X,
    Y,
)
add(
    "conversions",
    lambda x: (
        x.astype("int32"),
        x.astype("uint8"),
        x.astype("bool"),
        x.astype("float16"),
        (x > 0).astype("float32"),
    ),
    X * np.float32(300),
)
add("less precision", lambda x: (lax.reduce_precision(x, 8, 7), x.astype("float16").astype("float32")), X)
add(
    "of float16",
    lambda a: (a + a, a * 2, jnp.maximum(a, 0), a.sum(1), a @ a.transpose(0, 2, 1)),
    X.astype(np.float16),
)
add("select by one boolean", lambda x, y, b: lax.select(b, x, y), X, Y, np.array(False))
add("no dimension", lambda a: (a + 1, jnp.full((2, 3), 2.0) * a), np.array(1.5, np.float32))

# Forms
add(
    "reshapes and transposes",
    lambda x: (
        x.reshape(6, 4),
        x[:, None],
        x.transpose(2, 0, 1).reshape(8, 3),
        jnp.squeeze(x[:1]),
        jnp.moveaxis(x, 0, 2),
    ),
    X,
)
add(
    "put together",
    lambda x, y: (jnp.concatenate([x, y], 1), jnp.stack([x, y], -1), jnp.tile(x, (1, 2, 2))),
    X,
    Y,
)
add("repeated", lambda x: (jnp.repeat(x, 2, 1), jnp.broadcast_to(x[:, :1], (5, 2, 3, 4)).sum(0)), X)
add("slices", lambda x: (x[:, 1:3, ::2], x[..., ::-1], x[1], x[:, -1], x[::-1, :, ::-1]), X)
add(
    "padding between, around, and below zero",
    lambda x: lax.pad(x, 1.5, ((1, 2, 1), (-1, 1, 0), (0, -2, 2))),
    X,
)
add("padding that cuts more than there is", lambda x: lax.pad(x, 1.5, ((-3, 5, 0), (4, -6, 0), (0, 0, 1))), X)
add(
    "padding with its edge and its mirror",
    lambda x: (jnp.pad(x, 1, mode="edge"), jnp.pad(x, 1, mode="reflect")),
    X,
)
add("counting", lambda x: (jnp.arange(4) + x, lax.broadcasted_iota("int32", (3, 4), 0), jnp.eye(3) @ x[0]), X)
add("a mask", lambda x: jnp.where(jnp.tril(jnp.ones((3, 3), bool)), x[0] @ x[0].T, -1e9), X)
