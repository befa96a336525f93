"""Matrix products and convolutions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from stablehlo_zoo.cases import ABOVE, IMAGE, WHOLE, X, add, normal

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
