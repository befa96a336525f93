"""Compares arrays within the tolerance that rounding errors need.

A network's outputs have a width each, which comes from how far ONNX Runtime's own runs are from the reference (`widths`).

Without a width, as for a single kernel: floats may differ by a share of themselves plus a share of the array's root mean square,
since the error of a sum depends on the size of its terms. Integers and booleans must be equal, except for one step in
8-bit types (a rounding tie), and for one element in a thousand (an argmax or a comparison of two floats that tie).

NaN must meet NaN, and an infinity the same infinity. The tolerance is wider if weights were rounded, or if the network rounds its
activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.reference.float_pair import FloatPair
from tunefarm_tuning.reference.widths import QUANTILES, Width

RELATIVE_TOLERANCE: Mapping[str, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "float16": 5e-2,
    "bfloat16": 1e-1,
}
# Smaller than the above if a dtype allows it: large elements must not hide wrong small ones.
_SHARE_OF_RMS = {"float64": 1e-7, "float32": 2e-4, "float16": 5e-2, "bfloat16": 1e-1}
_SMALLEST_ABSOLUTE = {"float64": 1e-12, "float32": 1e-7, "float16": 1e-4, "bfloat16": 1e-3}
_FORGIVEN_SHARE = 1e-3
STEPS = "steps"
"""The rounding of a network that rounds its activations to integers, as quantised networks do: a tie between two floats then
moves a value by a whole step, and later values too, so that two correct runtimes differ."""
TIES = "ties"
"""The rounding of a single kernel that rounds to integers: as `STEPS` for the few elements that tie, as float32 for all others.

With a width, only elements that tied in one of its runs may be a step off, and a few more."""
_TAIL_SHARE = 1e-2
"""The share of elements that may be off by `Width.tail` more: one at least."""
BFLOAT16 = "bfloat16"
"""The rounding of a network or kernel that computes in bfloat16, or has such weights: sums in another order may differ by a step of
bfloat16, 0.4 %."""
# Relative tolerance, share of the root mean square, and share of integers that may differ, by rounding. The error of a sum of
# products is about the root of its length times a twentieth of a step: it depends on the root mean square, not on the element.
_ROUNDED = {"float16": (1e-2, 1e-2, 2e-2), BFLOAT16: (5e-2, 5e-2, 5e-2), STEPS: (1e-1, 1e-1, 5e-2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(JsonFields):
    """The comparison of two arrays.

    Attributes:
        name: The output's name.
        dtype: The expected dtype.
        ok: Whether the arrays are equal within the tolerance.
        max_abs_error: Largest difference of elements that are finite in both; 0.0 if there are none.
        max_rel_error: The same as a share of the expected array's root mean square.
        rtol: The relative tolerance; 0.0 for integers and booleans.
        mismatches: Number of elements outside of the tolerance.
        elements: Number of all elements.
        comparable: Number of elements that are finite in the expected array: if it is 0, `ok` says little.
        message: The fault, for people; empty if `ok`.
        mean_rel_error: Mean difference as a share of the root mean square.
        width: Median of what the elements may differ by, as a share of the root mean square; 0.0 if `rtol` says it.
        moved: The largest difference of ONNX Runtime's own runs from the reference, as a share of the root mean square; of
            integers the share that changed.
        unsteady: Number of elements that are not compared, since ONNX Runtime's own runs do not agree on them.
    """

    name: str
    dtype: str
    ok: bool
    max_abs_error: float
    max_rel_error: float
    rtol: float
    mismatches: int
    elements: int
    comparable: int
    message: str = ""
    mean_rel_error: float = 0.0
    width: float = 0.0
    moved: float = 0.0
    unsteady: int = 0


def compare_arrays(
    name: str,
    actual: NDArray[Any],
    expected: NDArray[Any],
    *,
    rounding: str = "float32",
    width: Width | None = None,
) -> Comparison:
    """Compare an output with the expected one.

    Args:
        name: The output's name.
        actual: The output.
        expected: The expected output; its dtype decides the tolerance. Another shape or dtype of `actual` is a mismatch.
        rounding: The rounding that widens the tolerance: ``"float16"`` or `BFLOAT16` for weights stored so, `STEPS` for a network that rounds
            its activations, `TIES` for one kernel that does; any other value widens nothing.
        width: How far each element may be; None takes fixed shares.
    """
    dtype = str(expected.dtype)
    rounded = _ROUNDED.get(rounding, (0.0, 0.0, 0.0))
    exact = dtype not in RELATIVE_TOLERANCE
    rtol = 0.0 if exact else max(RELATIVE_TOLERANCE[dtype], rounded[0])
    if actual.shape != expected.shape or str(actual.dtype) != dtype:
        actual_type, expected_type = f"{actual.dtype} {list(actual.shape)}", f"{dtype} {list(expected.shape)}"
        return Comparison(
            name=name,
            dtype=dtype,
            ok=False,
            max_abs_error=0.0,
            max_rel_error=0.0,
            rtol=rtol,
            mismatches=expected.size,
            elements=expected.size,
            comparable=0,
            message=f"it is {actual_type}, expected {expected_type}",
        )
    if exact:
        forgiven = int(max(_FORGIVEN_SHARE, rounded[2]) * expected.size)
        if width is not None:
            forgiven = max(width.forgiven, int(rounded[2] * expected.size))
            if rounding == TIES:  # those that tie are known, and not compared
                forgiven = min(forgiven, 1 + int(_FORGIVEN_SHARE * expected.size))
        slack = 1.0 if _is_byte(expected) and (width is None or rounding != TIES) else 0.0
        return _compare_exact(name, actual, expected, forgiven, slack, width)
    with np.errstate(all="ignore"):
        if width is not None:
            rtol = rounded[0]
        share = max(_SHARE_OF_RMS[dtype] if width is None else 0.0, rounded[1])
        return _compare_floats(
            name, actual, expected, rtol, share, width, ties=rounding == TIES and width is None
        )


def _compare_floats(
    name: str,
    actual: NDArray[Any],
    expected: NDArray[Any],
    rtol: float,
    share_of_rms: float,
    width: Width | None,
    *,
    ties: bool,
) -> Comparison:
    dtype = str(expected.dtype)
    if width is None and _are_identical(
        actual, expected
    ):  # above all inputs, which kernels leave as they are
        return _identical(name, expected, rtol)
    pair = FloatPair.of(actual, expected, width)
    scale, size = pair.scale, int(expected.size)
    absolute = max(share_of_rms * scale, _SMALLEST_ABSOLUTE[dtype] if width is None else 0.0)
    allowed = pair.tolerance(rtol, absolute)
    if width is not None:
        allowed = allowed + width.allowed
    outside = pair.beyond(allowed)
    if ties and np.count_nonzero(outside) <= int(_FORGIVEN_SHARE * size):
        step_rtol, step_share, _ = _ROUNDED[STEPS]
        outside &= pair.beyond(pair.tolerance(step_rtol, step_share * scale))
    middle = float(np.median(allowed[pair.compared])) if pair.compared.any() else 0.0
    if width is not None and width.tail and share_of_rms and outside.any():
        few = np.count_nonzero(outside) <= 1 + int(_TAIL_SHARE * size)
        if few or _is_as_of_narrow(pair.errors, width, absolute):
            outside &= pair.beyond(allowed + width.tail)
            middle = middle if few else max((middle, *width.narrow_quantiles[:1]))
    if outside.any():
        message = pair.worst_in_words(outside, None if width is None else allowed)
    else:
        message = "" if width is None or share_of_rms else _everywhere(pair.errors, width, scale)
    worst = float(pair.error.max(initial=0.0))
    mean = float(pair.errors.mean()) if pair.compared.any() else 0.0
    return Comparison(
        name=name,
        dtype=dtype,
        ok=not message,
        max_abs_error=worst,
        max_rel_error=worst / scale if 0 < scale < np.inf else 0.0,
        mean_rel_error=mean / scale if 0 < scale < np.inf else 0.0,
        rtol=rtol,
        mismatches=int(np.count_nonzero(outside)),
        elements=size,
        comparable=pair.comparable,
        message=message,
        width=_share(middle, scale, width),
        moved=0.0 if width is None else width.moved,
        unsteady=int(np.count_nonzero(pair.unsteady)),
    )


def _is_as_of_narrow(error: NDArray[np.float64], width: Width, absolute: float) -> bool:
    """Return whether the errors are distributed as those of ONNX Runtime with rounded factors, or are below what all may be off by."""
    most = np.maximum(width.narrow_quantiles, absolute)
    return not width.narrow_quantiles or all(np.quantile(error, QUANTILES) <= most)


def _are_identical(actual: NDArray[Any], expected: NDArray[Any]) -> bool:
    if not (actual.flags.c_contiguous and expected.flags.c_contiguous):
        return False
    return bool(np.array_equal(actual.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8)))


def _identical(name: str, expected: NDArray[Any], rtol: float) -> Comparison:
    return Comparison(
        name=name,
        dtype=str(expected.dtype),
        ok=True,
        max_abs_error=0.0,
        max_rel_error=0.0,
        rtol=rtol,
        mismatches=0,
        elements=int(expected.size),
        comparable=int(np.count_nonzero(np.isfinite(expected))),
    )


def _share(value: float, scale: float, width: Width | None) -> float:
    return value / scale if width is not None and 0 < scale < np.inf else 0.0


def _everywhere(error: NDArray[np.float64], width: Width, scale: float) -> str:
    """Say that an output is off by more than rounding explains in many elements, though in none by too much; empty if it is not."""
    if not width.quantiles or not error.size:
        return ""
    actual = np.quantile(error, QUANTILES)
    for share, is_, may_be in zip(QUANTILES, actual, width.quantiles, strict=True):
        if is_ > may_be:
            return (
                f"{1 - share:.0%} of the {error.size} elements are off by more than {is_:.2g} "
                f"({_share(is_, scale, width):.2g} of the root mean square), where rounding explains {may_be:.2g}"
            )
    return ""


def _compare_exact(
    name: str, actual: NDArray[Any], expected: NDArray[Any], forgiven: int, slack: float, width: Width | None
) -> Comparison:
    ours, want = actual.astype(np.float64), expected.astype(np.float64)
    # float64 does not hold all 64-bit integers exactly, so the originals are compared.
    differs = actual != expected
    error = np.where(differs, np.abs(ours - want), 0.0)
    outside = differs & (error > slack) if slack else differs
    unsteady = np.zeros(expected.shape, bool) if width is None else np.isinf(width.allowed)
    mismatches = int(np.count_nonzero(outside & ~unsteady))
    ok = mismatches <= forgiven
    scale = float(np.sqrt(np.mean(np.square(want)))) if want.size else 0.0
    worst = float(error.max(initial=0.0))
    return Comparison(
        name=name,
        dtype=str(expected.dtype),
        ok=ok,
        max_abs_error=worst,
        max_rel_error=worst / scale if scale > 0 else 0.0,
        mean_rel_error=float(error.mean()) / scale if scale > 0 else 0.0,
        rtol=0.0,
        mismatches=mismatches,
        elements=int(want.size),
        comparable=int(want.size - np.count_nonzero(unsteady)),
        message="" if ok else f"{mismatches} of {want.size} elements differ, by up to {worst:g}",
        moved=0.0 if width is None else width.moved,
        unsteady=int(np.count_nonzero(unsteady)),
    )


def _is_byte(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" and array.dtype.itemsize == 1


def width_with_shares(reference: NDArray[Any], width: Width | None, rounding: str) -> Width:
    """Return a width that holds the fixed shares of a rounding (`STEPS`, `BFLOAT16`) as well, and needs no rounding beside."""
    rtol, share, flips = _ROUNDED[rounding]
    allowed = np.zeros(reference.shape, np.float32) if width is None else width.allowed
    if str(reference.dtype) not in RELATIVE_TOLERANCE:
        forgiven = max(int(flips * reference.size), 0 if width is None else width.forgiven)
        return Width(allowed=allowed, moved=0.0 if width is None else width.moved, forgiven=forgiven)
    sizes = np.abs(reference.astype(np.float64))
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    shares = (rtol * finite + share * rms).astype(np.float32)
    return Width(allowed=allowed + shares, moved=0.0 if width is None else width.moved)


def compare_outputs(
    names: Sequence[str],
    actual: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    *,
    rounding: str = "float32",
    widths: Sequence[Width | None] | None = None,
) -> list[Comparison]:
    """Compare outputs in order, as `compare_arrays`; another number of outputs is one failed comparison."""
    if len(actual) != len(expected):
        return [
            Comparison(
                name="",
                dtype="",
                ok=False,
                max_abs_error=0.0,
                max_rel_error=0.0,
                rtol=0.0,
                mismatches=0,
                elements=0,
                comparable=0,
                message=f"there are {len(actual)} outputs, expected {len(expected)}",
            )
        ]
    by_output: Sequence[Width | None] = widths or [None] * len(expected)
    return [
        compare_arrays(name, array, wanted, rounding=rounding, width=width)
        for name, array, wanted, width in zip(names, actual, expected, by_output, strict=True)
    ]
