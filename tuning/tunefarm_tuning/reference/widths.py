"""How far an output may be from the reference: by how far ONNX Runtime itself is, in several legal orders of computing.

The reference is the network in float64 where ONNX Runtime can run it, else the mean of its own runs. A run's error at one element is a
sample of chance, so the width is not taken from an element alone: it comes from the largest error of any run in the
slices of the output that hold the element, from the largest of the whole output, and from a floor that rounding explains. All of
them are multiplied: F(4 x 4, 3 x 3) of Winograd, which is legal, errs up to thirty times as far as a direct convolution, and an
exponential or error function in vectors up to fifteen times as far as the C library's.

An error that is small everywhere hides below the largest ones. So quantiles of the error are compared, too. Where a tie moves what follows
(two scores that `TopK` sorts), how many elements are moved is chance: there a few times as many may be as in a run.

See docs/adr/0044-the-width-is-what-the-network-moves.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays

MULTIPLE = 64.0
"""How many times as far as ONNX Runtime's runs an element may be."""
_WHOLE_MULTIPLE = 16.0
"""The same for the largest error of the whole output, which elements of steady slices may reach."""
STEPS_MULTIPLE = 16.0
"""The same where a tie moves an output: errors of ties are large, but they do not differ as those of rounding do."""
_NARROW_MULTIPLE = 4.0
"""How many times as far as ONNX Runtime's runs with rounded factors elements may be: the largest error, and each quantile.

A compile rounds what lies between products as well. OpenVINO, which does, errs up to 2.5 times as far as those runs."""
QUANTILES = (0.5, 0.9, 0.99)
_LEAST_FOR_QUANTILES = 256
_TIED_MULTIPLE = 2.0
"""How many times as many elements may be moved by ties as in the run with most."""
_LEAST_SLICE = 64
"""Fewest elements of a slice whose largest error tells something of the others'."""
_SMALLEST = 1e-30
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_EPSILON_FLOAT32 = 2.0**-23
_FORGIVEN_FLIPS = 4
_FORGIVEN_SHARE = 1e-5
_LEAST_FORGIVING = 1000
"""Integers of an output that may differ where no run did: a few times as many as changed in a run, and one in 100,000."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Width:
    """How far each element of one output may be from the reference.

    Attributes:
        allowed: By element; infinite where the runs themselves do not agree (ties of integers, infinities).
        quantiles: The largest that `QUANTILES` of the error may be; empty if the output is too small to tell.
        moved: The largest error of ONNX Runtime's own runs, as a share of the reference's root mean square.
        forgiven: The number of integers that may differ beside those that are allowed to.
        tail: How much further than allowed few elements may be where the compile rounds the factors of products; 0.0 if it does not.
        narrow_quantiles: The largest that `QUANTILES` of the error may be there, for more elements to be off by `tail`; empty if
            the output is too small to tell: then any may.
    """

    allowed: NDArray[np.float32]
    quantiles: tuple[float, ...] = ()
    moved: float = 0.0
    forgiven: int = 0
    tail: float = 0.0
    narrow_quantiles: tuple[float, ...] = ()


def reference_of(runs: Sequence[NDArray[Any]], exact: NDArray[Any] | None) -> NDArray[Any]:
    """Return the reference of one output, in the dtype of the runs.

    Args:
        runs: ONNX Runtime's outputs, the plainest first.
        exact: The same in float64, if it could be computed. Elements that are not finite there are taken from the runs.
    """
    first = runs[0]
    if not _is_float(first):
        return first if exact is None or exact.dtype != first.dtype else exact
    with np.errstate(all="ignore"):
        if exact is None:
            middle = np.mean([run.astype(np.float64) for run in runs], axis=0)
        else:
            middle = exact.astype(np.float64)
        narrow = middle.astype(first.dtype)
        usable = np.isfinite(narrow.astype(np.float64))
    return np.where(usable, narrow, first).astype(first.dtype, copy=False)


def width_of(
    reference: NDArray[Any],
    runs: Sequence[NDArray[Any]],
    for_ties: Sequence[NDArray[Any]] = (),
    *,
    by_slices: bool = False,
    jumps: bool = False,
) -> Width:
    """Return how far an output may be from its reference.

    Args:
        reference: From `reference_of`.
        runs: The same output as ONNX Runtime computes it in several ways.
        for_ties: Further runs, of inputs and weights that were moved by several units in the last place: they only tell which elements
            tie.
        by_slices: Whether an element may be as far as its slices alone say, not as the whole output does.
        jumps: Whether ties in the network move some elements by far more than rounding does.
    """
    if not _is_float(reference):
        return _width_of_integers(reference, [*runs, *for_ties])
    with np.errstate(all="ignore"):
        tied = _TIED_MULTIPLE if jumps else 1.0
        return _width_of_floats(reference, runs, for_ties, 0.0 if by_slices else _WHOLE_MULTIPLE, tied)


def with_tail(reference: NDArray[Any], width: Width, narrow: Sequence[NDArray[Any]]) -> Width:
    """Return a width by which elements may be as far as rounded factors move them.

    Rounding adds up at few elements of some networks: in ONNX Runtime, too, scores of a face detector move by 17 % of their root mean
    square. Which elements these are is chance. In others it adds up everywhere: then the errors may be distributed as there.

    Args:
        reference: The expected output.
        width: How far it may be otherwise.
        narrow: The same output as ONNX Runtime computes it with the factors of products rounded.
    """
    if not _is_float(reference) or not narrow:
        return width
    with np.errstate(all="ignore"):
        errors = np.abs(np.subtract(narrow, reference, dtype=np.float64))
    finite = np.isfinite(errors)
    quantiles: tuple[float, ...] = ()
    if np.count_nonzero(finite) >= len(narrow) * _LEAST_FOR_QUANTILES:
        quantiles = tuple(
            float(_NARROW_MULTIPLE * quantile) for quantile in np.quantile(errors[finite], QUANTILES)
        )
    largest = float(errors[finite].max(initial=0.0))
    return replace(width, tail=_NARROW_MULTIPLE * largest, narrow_quantiles=quantiles)


def width_of_steps(reference: NDArray[Any], runs: Sequence[NDArray[Any]]) -> Width:
    """Return how far an output of a network that rounds its activations to integers may be, beside the fixed shares.

    Args:
        reference: The plain run's output.
        runs: The same output as ONNX Runtime computes it in several ways. Which elements a tie moves is chance, so the largest error of
            any run, times `STEPS_MULTIPLE`, is allowed in all of them.
    """
    if not _is_float(reference):
        return _width_of_integers(reference, runs)
    with np.errstate(all="ignore"):
        want = reference.astype(np.float64)
        finite = np.isfinite(want)
        largest = 0.0
        unsteady = np.zeros(want.shape, bool)
        for run in runs:
            values = run.astype(np.float64)
            unsteady |= (finite != np.isfinite(values)) | (~finite & ~_same_kind(values, want))
            largest = max(largest, float(np.abs(values - want)[finite & ~unsteady].max(initial=0.0)))
        steady = finite & ~unsteady
        rms = float(np.sqrt(np.mean(np.square(want[steady])))) if steady.any() else 0.0
    allowed = np.where(steady, STEPS_MULTIPLE * largest, np.where(unsteady, np.inf, 0.0))
    return Width(allowed=allowed.astype(np.float32), moved=largest / rms if 0 < rms < np.inf else 0.0)


def _width_of_floats(
    reference: NDArray[Any],
    runs: Sequence[NDArray[Any]],
    for_ties: Sequence[NDArray[Any]],
    whole_multiple: float,
    tied_multiple: float,
) -> Width:
    want = reference.astype(np.float64)
    finite = np.isfinite(want)
    wide = [run.astype(np.float64) for run in (*runs, *for_ties)]
    unsteady = np.zeros(want.shape, bool)
    for values in wide:
        unsteady |= (finite != np.isfinite(values)) | (~finite & ~_same_kind(values, want))
    steady = finite & ~unsteady
    errors = [np.where(steady, np.abs(values - want), 0.0) for values in wide[: len(runs)]]
    worst = np.max(errors, axis=0) if errors else np.zeros_like(want)
    rms = float(np.sqrt(np.mean(np.square(want[steady])))) if steady.any() else 0.0
    epsilon = _EPSILON.get(str(reference.dtype), _EPSILON_FLOAT32)
    floor = epsilon * (np.where(steady, np.abs(want), 0.0) + rms) + _SMALLEST
    largest = float(worst.max(initial=0.0))
    # numpy makes a number of an array without dimensions
    allowed = np.asarray(
        np.maximum(MULTIPLE * np.maximum(_by_slices(worst), floor), whole_multiple * largest)
    )
    allowed[~steady] = np.where(unsteady, np.inf, 0.0)[~steady]
    quantiles: tuple[float, ...] = ()
    count = int(np.count_nonzero(steady))
    if count >= _LEAST_FOR_QUANTILES and errors:
        # the median stays: where most elements tie, nothing else tells a fault
        shares = [QUANTILES[0], *(1.0 - (1.0 - share) / tied_multiple for share in QUANTILES[1:])]
        by_run = np.array([np.quantile(error[steady], shares) for error in errors])
        least = epsilon * np.quantile(np.abs(want[steady]), QUANTILES) + epsilon * rms / 4 + _SMALLEST
        quantiles = tuple(float(q) for q in MULTIPLE * np.maximum(by_run.max(axis=0), least))
    return Width(
        allowed=allowed.astype(np.float32),
        quantiles=quantiles,
        moved=largest / rms if 0 < rms < np.inf else 0.0,
    )


def _width_of_integers(reference: NDArray[Any], runs: Sequence[NDArray[Any]]) -> Width:
    differs = [run != reference for run in runs if run.shape == reference.shape]
    unsteady = np.zeros(reference.shape, bool)
    for difference in differs:
        unsteady |= difference
    flips = max((int(np.count_nonzero(difference)) for difference in differs), default=0)
    rare = 1 + int(_FORGIVEN_SHARE * reference.size) if reference.size >= _LEAST_FORGIVING else 0
    return Width(
        allowed=np.where(unsteady, np.inf, 0.0).astype(np.float32),
        moved=flips / reference.size if reference.size else 0.0,
        forgiven=_FORGIVEN_FLIPS * flips + rare if reference.size >= _LEAST_FORGIVING else 0,
    )


def _by_slices(worst: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each element, the largest error in the steadiest slice that holds it: a row, a column, a channel.

    Large coordinates beside small scores so do not widen what the scores may be.
    """
    around = np.full(worst.shape, worst.max(initial=0.0))
    for axis, size in enumerate(worst.shape):
        if size > 1 and worst.size // size >= _LEAST_SLICE:
            others = tuple(other for other in range(worst.ndim) if other != axis)
            around = np.minimum(around, worst.max(axis=others, keepdims=True))
    return around


def _same_kind(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return same


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" or str(array.dtype) == "bfloat16"


def save_widths(path: Path, widths: Sequence[Width | None]) -> None:
    """Write the widths of a network's outputs to a file (ending in .npz); None stands for fixed shares."""
    arrays: list[NDArray[Any]] = []
    for width in widths:
        if width is None:
            arrays += [np.zeros(0)] * 3
            continue
        numbers = [width.moved, float(width.forgiven), width.tail, *width.quantiles]
        arrays += [width.allowed, np.array(numbers, np.float64), np.array(width.narrow_quantiles, np.float64)]
    save_arrays(path, arrays)


def load_widths(path: Path | str | None) -> list[Width | None] | None:
    """Read what `save_widths` wrote; None without a file."""
    if path is None:
        return None
    arrays = load_arrays(path)
    return [
        Width(
            allowed=allowed,
            moved=float(numbers[0]),
            forgiven=int(numbers[1]),
            tail=float(numbers[2]),
            quantiles=tuple(float(number) for number in numbers[3:]),
            narrow_quantiles=tuple(float(number) for number in narrow),
        )
        if numbers.size
        else None
        for allowed, numbers, narrow in zip(arrays[::3], arrays[1::3], arrays[2::3], strict=True)
    ]
