"""Random arrays for checks and timings, the same on every machine for the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.workload.task import TensorSpec


class InputKind(StrEnum):
    """How floats are drawn. Integers and booleans do not depend on it.

    8-bit integers, which stand for real numbers, have all values: a quantised network would round values near 0 to nothing. Wider
    integers and booleans are 0 or 1, so that an index is in range; integers that index a table, as tokens do, go up to
    its size.
    """

    NORMAL = "normal"  # mean 0, deviation 1
    POSITIVE = "positive"  # uniform in [0.1, 1), so that logarithms and square roots are numbers
    IMAGE = "image"  # smooth, in [0, 1]
    BYTE_IMAGE = "byte-image"  # the same in whole numbers of [0, 255]
    AUDIO = "audio"  # a few tones and some noise along the longest axis, mean 0, in [-1, 1]


def random_inputs(
    specs: Sequence[TensorSpec],
    *,
    seed: int,
    kind: InputKind = InputKind.NORMAL,
    sizes: Mapping[str, int] | None = None,
) -> list[NDArray[Any]]:
    """Return one random array per spec.

    Args:
        specs: Shapes and dtypes.
        seed: Equal seeds give equal arrays.
        kind: How floats are drawn.
        sizes: By the name of an integer input: its values are less than this number.

    Raises:
        InvalidInputError: If numpy has no such dtype.
    """
    rng = np.random.default_rng(seed)
    ends = sizes or {}
    return [
        np.asarray(_random_array(spec, rng, kind, ends.get(spec.name, 2))) for spec in specs
    ]  # numpy returns scalars for shape ()


def _random_array(spec: TensorSpec, rng: np.random.Generator, kind: InputKind, end: int) -> NDArray[Any]:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, size=spec.shape, dtype=dtype, endpoint=True)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else end, size=spec.shape).astype(dtype)
    if kind is InputKind.NORMAL:
        return rng.standard_normal(size=spec.shape, dtype=np.float32).astype(dtype)
    if kind is InputKind.AUDIO:
        return _tones(spec.shape, rng).astype(dtype)
    if kind in (InputKind.IMAGE, InputKind.BYTE_IMAGE):
        pixels = np.clip(0.5 + _waves(spec.shape, rng) + 0.05 * rng.standard_normal(spec.shape), 0.0, 1.0)
        return (pixels if kind is InputKind.IMAGE else np.round(255.0 * pixels)).astype(dtype)
    return (0.1 + 0.9 * rng.random(size=spec.shape, dtype=np.float32)).astype(dtype)


def _waves(shape: Sequence[int], rng: np.random.Generator) -> NDArray[Any]:
    """Return a few long waves along every axis, of about a quarter."""
    total = np.zeros(tuple(shape))
    for axis, size in enumerate(shape):
        cycles, phases = rng.uniform(0.5, 4.0, size=3), rng.uniform(0.0, 2 * np.pi, size=3)
        at = np.arange(size)[:, None] / max(1, size)
        wave = np.sin(2 * np.pi * at * cycles + phases).sum(axis=1)
        total = total + wave.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    return np.asarray(total * (0.25 / np.sqrt(1.5 * max(1, len(shape)))))


def _tones(shape: Sequence[int], rng: np.random.Generator) -> NDArray[Any]:
    if not shape:
        return np.asarray(rng.uniform(-1.0, 1.0))
    axis = int(np.argmax(shape))
    at = np.arange(shape[axis])[:, None]
    tones = np.sin(at * rng.uniform(0.01, 1.5, size=5) + rng.uniform(0.0, 2 * np.pi, size=5)).mean(axis=1)
    line = tones.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    sound = 0.5 * line + 0.02 * rng.standard_normal(tuple(shape))
    return np.asarray(np.clip(sound - sound.mean(), -1.0, 1.0))


_CHANNELS = (1, 3, 4)
_LEAST_SOUND = 256


def kinds_for(specs: Sequence[TensorSpec]) -> tuple[InputKind, ...]:
    """Return the kinds of inputs that a network is compared on: noise for all, and what its inputs look like."""
    floats = [spec.shape for spec in specs if numpy_dtype(spec.dtype).kind not in "biu"]
    kinds = [InputKind.NORMAL, InputKind.POSITIVE]
    if any(len(shape) == 4 and (shape[1] in _CHANNELS or shape[3] in _CHANNELS) for shape in floats):
        kinds += [InputKind.IMAGE, InputKind.BYTE_IMAGE]
    elif any(1 <= len(shape) <= 3 and max(shape) >= _LEAST_SOUND for shape in floats):
        kinds.append(InputKind.AUDIO)
    return tuple(kinds)
