"""Small whole networks in ordinary JAX code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_RNG = np.random.default_rng(0)
_NHWC = ("NHWC", "HWIO", "NHWC")


def _weight(*shape: int) -> Any:
    return jnp.asarray((_RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32))


def _conv(x: Any, w: Any, stride: int = 1, **more: Any) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=_NHWC, **more)


class _Norm:
    def __init__(self, size: int) -> None:
        self.mean, self.scale, self.shift = _weight(size), _weight(size) + 1, _weight(size)
        self.variance = jnp.abs(_weight(size)) + 1

    def __call__(self, x: Any) -> Any:
        return (x - self.mean) * (lax.rsqrt(self.variance + 1e-5) * self.scale) + self.shift


_STEM, _STEM_NORM = _weight(7, 7, 3, 16), _Norm(16)
_BLOCKS = [
    (_weight(3, 3, 16, 16), _Norm(16), _weight(3, 3, 16, 16), _Norm(16), None, 1),
    (
        _weight(3, 3, 16, 32),
        _Norm(32),
        _weight(3, 3, 32, 32),
        _Norm(32),
        (_weight(1, 1, 16, 32), _Norm(32)),
        2,
    ),
]
_HEAD = _weight(32, 10)


def resnet(image: Any) -> Any:
    x = jax.nn.relu(_STEM_NORM(_conv(image, _STEM, 2)))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for first, first_norm, second, second_norm, short, stride in _BLOCKS:
        y = jax.nn.relu(first_norm(_conv(x, first, stride)))
        y = second_norm(_conv(y, second))
        x = jax.nn.relu(y + (x if short is None else short[1](_conv(x, short[0], stride))))
    return {"logits": x.mean((1, 2)) @ _HEAD}


_WIDTH, _HEADS, _WORDS = 32, 4, 12
_EMBEDDING, _POSITION = _weight(50, _WIDTH), _weight(_WORDS, _WIDTH)
_QKV, _MERGE = _weight(_WIDTH, 3 * _WIDTH), _weight(_WIDTH, _WIDTH)
_UP, _DOWN, _SCALE, _SHIFT = _weight(_WIDTH, 64), _weight(64, _WIDTH), _weight(_WIDTH), _weight(_WIDTH)


def _layer_norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * _SCALE + _SHIFT


def transformer(tokens: Any) -> Any:
    x = jnp.take(_EMBEDDING, tokens, axis=0) + _POSITION
    for exact in (False, True):
        q, k, v = (
            t.reshape(*t.shape[:2], _HEADS, _WIDTH // _HEADS) for t in jnp.split(_layer_norm(x) @ _QKV, 3, -1)
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(_WIDTH // _HEADS)
        scores = jnp.where(jnp.tril(jnp.ones((_WORDS, _WORDS), bool)), scores, -1e9)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ _MERGE
        x = x + jax.nn.gelu(_layer_norm(x) @ _UP, approximate=not exact) @ _DOWN
    logits = x @ _EMBEDDING.T
    return {"logits": logits, "next": jnp.argmax(logits[:, -1], -1)}


_PATCH, _TOKENS = _weight(4, 4, 3, _WIDTH), _weight(64, 64)


def mixer(image: Any) -> Any:
    y = lax.conv_general_dilated(image, _PATCH, (4, 4), "VALID", dimension_numbers=_NHWC).reshape(
        1, 64, _WIDTH
    )
    y = y + (jax.nn.gelu(_layer_norm(y).transpose(0, 2, 1) @ _TOKENS) @ _TOKENS).transpose(0, 2, 1)
    y = y + jax.nn.gelu(_layer_norm(y) @ _UP) @ _DOWN
    return y.mean(1) @ _HEAD


_INPUT_GATES, _STATE_GATES = _weight(8, 64), _weight(16, 64)


def lstm(steps: Any) -> Any:
    def cell(carry: Any, x: Any) -> Any:
        state, memory = carry
        i, f, g, o = jnp.split(x @ _INPUT_GATES + state @ _STATE_GATES, 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (state, memory), state

    zeros = jnp.zeros((steps.shape[0], 16))
    (last, _), states = lax.scan(cell, (zeros, zeros), steps.transpose(1, 0, 2))
    return states.transpose(1, 0, 2), last


_DEPTHWISE, _TRANSPOSED, _DILATED = _weight(3, 3, 1, 8), _weight(3, 3, 8, 4), _weight(3, 3, 8, 4)


def segmenter(image: Any) -> Any:
    y = jax.nn.relu(_conv(image, _DEPTHWISE, feature_group_count=8))
    y = lax.conv_transpose(y, _TRANSPOSED, (2, 2), "SAME", dimension_numbers=_NHWC)
    y = y + _conv(jnp.concatenate([y, y * 2], -1), _DILATED, rhs_dilation=(2, 2))
    return jax.nn.softmax(lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4)


def _images(*shape: int) -> Any:
    return _RNG.standard_normal(shape, dtype=np.float32)


NETWORKS: dict[str, tuple[Callable[..., Any], Any]] = {
    "resnet": (resnet, _images(1, 32, 32, 3)),
    "transformer": (transformer, _RNG.integers(0, 50, (2, _WORDS)).astype(np.int32)),
    "mixer": (mixer, _images(1, 32, 32, 3)),
    "lstm": (lstm, _images(2, 6, 8)),
    "segmenter": (segmenter, _images(1, 8, 8, 8)),
}
