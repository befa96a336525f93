"""Lookups, slices and updates at computed indices, loops and branches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stablehlo_zoo.cases import IMAGE, ROWS, TABLE, X, add

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
