"""Functions of JAX for each operation and form of StableHLO that tunefarm converts, with inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

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

# Elementwise
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

# Matrices
for spec in ("abc,abd->acd", "abc,dbc->ad", "abc,adc->abd", "abc,dec->abde", "abc,def->abcdef", "abc,abc->", "abc,abc->b",
             "abc,dbe->dace", "abc,acd->abd", "abc,dce->eabd"):  # fmt: skip
    sizes = dict(zip("abcdef", (2, 3, 4, 5, 2, 3), strict=True))
    pair = [normal(*(sizes[i] for i in part)) for part in spec.partition("->")[0].split(",")]
    add(f"product {spec}", lambda a, b, s=spec: jnp.einsum(s, a, b), *pair)
WEIGHT, LEFT = jnp.asarray(normal(4, 5)), jnp.asarray(normal(7, 3))
add(
    "dense layers",
    lambda x: (x @ WEIGHT + WEIGHT[0], jnp.einsum("ab,nbc->nac", LEFT, x), x[0] @ WEIGHT, x[0, 0] @ WEIGHT),
    X,
)
add(
    "products of integers",
    lambda a, b: (a[0] @ b[0].T, lax.dot(a[0], b[0].T, preferred_element_type="int32")),
    WHOLE,
    ABOVE,
)

# Convolutions
NHWC = ("NHWC", "HWIO", "NHWC")
KERNEL = jnp.asarray(normal(3, 2, 6, 4))
DEPTHWISE = jnp.asarray(normal(3, 3, 1, 12))
GROUPED = jnp.asarray(normal(3, 3, 3, 8))
LINE = jnp.asarray(normal(3, 6, 4))
SPACE = jnp.asarray(normal(3, 2, 2, 6, 4))
GROUPED_HOLES = jnp.asarray(normal(3, 3, 3, 8))


def conv(x: Any, w: Any, strides: Any = (1, 1), padding: Any = "SAME", **more: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=more.pop("numbers", NHWC), **more
    )


add("convolution", lambda x: conv(x, KERNEL), IMAGE)
add(
    "convolution in steps",
    lambda x: (conv(x, KERNEL, (2, 1), "VALID"), conv(x, KERNEL, (2, 2), ((3, 1), (0, 4)))),
    IMAGE,
)
add("convolution of a part", lambda x: conv(x, KERNEL, (1, 2), ((-1, 2), (1, -2))), IMAGE)
add("convolution with holes", lambda x: conv(x, KERNEL, rhs_dilation=(2, 3)), IMAGE)
add("convolution by an input", conv, IMAGE, normal(3, 2, 6, 4))
add(
    "convolution, channels first",
    lambda x: conv(x.transpose(0, 3, 1, 2), KERNEL, numbers=("NCHW", "HWIO", "NCHW")),
    IMAGE,
)
add("convolution of odd layouts", lambda x: conv(x, KERNEL, numbers=("HNWC", "HWIO", "CWNH")), IMAGE)
add("convolution of each channel", lambda x: conv(x, DEPTHWISE, feature_group_count=6), IMAGE)
add("convolution in groups", lambda x: conv(x, GROUPED, feature_group_count=2), IMAGE)
add("convolution in groups of batches", lambda x: conv(x, KERNEL, batch_group_count=2), IMAGE)
add(
    "convolution along a line",
    lambda x: conv(x, LINE, (2,), numbers=("NWC", "WIO", "NWC")),
    normal(2, 11, 6),
)
add(
    "convolution in space",
    lambda x: conv(x, SPACE, (2, 1, 1), numbers=("NDHWC", "DHWIO", "NDHWC")),
    normal(1, 5, 6, 7, 6),
)
CHANNELS = [jnp.asarray(normal(4)) for _ in range(3)]
add(
    "norms behind convolutions",
    lambda x: (
        (conv(x, KERNEL) - CHANNELS[0]) * CHANNELS[1] + CHANNELS[2],
        conv(x, KERNEL) * CHANNELS[1] + CHANNELS[2],
        CHANNELS[1] * (conv(x, KERNEL) - CHANNELS[0]),
        CHANNELS[0] - conv(x, KERNEL) * CHANNELS[1],
        (conv(x, KERNEL) + CHANNELS[0]) * CHANNELS[1],
    ),
    IMAGE,
)
for step in (2, 3):
    for padding in ("SAME", "VALID"):
        add(
            f"transposed convolution, {step}, {padding}",
            lambda x, s=step, p=padding: lax.conv_transpose(x, KERNEL, (s, s), p, dimension_numbers=NHWC),
            IMAGE,
        )
for low, high in ((0, 0), (1, 2), (-1, 0), (3, 5), (0, -2)):
    add(
        f"convolution of a spaced image, {low}, {high}",
        lambda x, a=low, b=high: (
            conv(x, KERNEL, (1, 1), ((a, b), (b, a)), lhs_dilation=(2, 3)),
            conv(x, KERNEL, (2, 1), ((a, b), (b, a)), lhs_dilation=(2, 3)),
        ),
        IMAGE,
    )
add(
    "transposed convolution in groups, with holes",
    lambda x: conv(
        x,
        GROUPED_HOLES,
        (1, 1),
        ((1, 2), (2, 1)),
        lhs_dilation=(2, 3),
        rhs_dilation=(2, 1),
        feature_group_count=2,
    ),
    IMAGE,
)

# Reductions and windows
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

# Places
add("lookups", lambda k: (jnp.take(TABLE, k, axis=0, mode="clip"), TABLE[k], TABLE[:, k % 5]), ROWS)
add(
    "lookups outside",
    lambda k: (jnp.take(TABLE, k, axis=0, mode="fill"), jnp.take(TABLE, k, axis=1, mode="wrap")),
    ROWS,
)
add("lookups at known places", lambda x: (x[:, jnp.array([0, 2])], x[[0, 1], [1, 2]], x[:, [1, 0], ::2]), X)
add("lookups in several dimensions", lambda k, x: x[k[:, 0] % 2, :, k[:, 1] % 3], ROWS, X)
add("along an axis", lambda k, x: jnp.take_along_axis(x, k[..., None] % 4, axis=2), ROWS, X)
add(
    "windows at places",
    lambda k: jax.vmap(lambda s: lax.dynamic_slice(TABLE, (s[0], s[1]), (3, 2)))(k[:, :2]),
    ROWS,
)
add(
    "slices at computed places",
    lambda x, k: (
        lax.dynamic_slice(x, (0, k, 1), (1, 2, 2)),
        lax.dynamic_update_slice(x, x[:1, :2] * 2, (1, k, 0)),
        x[:, k],
    ),
    X,
    np.int32(1),
)
add(
    "updates at known places",
    lambda x: (x.at[:, 1:3].set(0.0), x.at[0, 1].set(2.0), x.at[..., 1].mul(3.0)),
    X,
)
add(
    "scatters",
    lambda k, x: (
        x.at[:, k[0]].set(1.0),
        x.at[:, k[0] % 3].add(x),
        x.at[k[0, 0] % 2].max(0.0),
        jnp.zeros((10, 4)).at[k].add(x),
    ),
    ROWS,
    X,
)

# Control
add(
    "loops",
    lambda x: (
        lax.scan(lambda c, a: (c * 0.5 + a, c.sum()), jnp.zeros((3, 4)), x),
        lax.fori_loop(0, 3, lambda k, c: c * 1.5 + k, x),
    ),
    X,
)
add("mapped", lambda x: lax.map(lambda a: a * 2, x), X)
add("branches", lambda x: lax.cond(jnp.array(True), lambda y: y, lambda y: -y, x), X)
add("one hot", lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 4), X)
add(
    "resized",
    lambda x: (jax.image.resize(x, (2, 18, 16, 6), "bilinear"), jax.image.resize(x, (2, 5, 4, 6), "nearest")),
    IMAGE,
)
add("an input as it is, twice", lambda x: (x, x, x * 0 + 1), X)
