"""`FloatPair`: how far floats are from those that were expected, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.reference.widths import Width


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatPair:
    """Floats beside those that were expected.

    Attributes:
        compared: Where both are finite, and the reference is steady.
        kind_differs: Where one of them is finite alone, or they are not the same of NaN and the infinities.
        unsteady: Where the reference may be anything.
        error: The differences where they are compared, zeros elsewhere.
        scale: The root mean square of what was expected.
    """

    actual: NDArray[np.float64]
    expected: NDArray[np.float64]
    compared: NDArray[np.bool_]
    kind_differs: NDArray[np.bool_]
    unsteady: NDArray[np.bool_]
    error: NDArray[np.float64]
    scale: float

    @classmethod
    def of(cls, actual: NDArray[Any], expected: NDArray[Any], width: Width | None) -> Self:
        """Return the pair of two arrays of one shape; `width` says where the reference is steady."""
        ours, want = actual.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(want)
        kind_differs = finite != np.isfinite(ours)
        kind_differs |= ~finite & ~((ours == want) | (np.isnan(ours) & np.isnan(want)))
        unsteady = np.zeros(want.shape, bool) if width is None else np.isinf(width.allowed)
        compared = finite & np.isfinite(ours) & ~unsteady
        return cls(
            actual=ours,
            expected=want,
            compared=compared,
            kind_differs=kind_differs & ~unsteady,
            unsteady=unsteady,
            error=np.abs(np.subtract(ours, want, out=np.zeros_like(want), where=compared)),
            scale=float(np.sqrt(np.mean(np.square(want[finite])))) if finite.any() else 0.0,
        )

    @property
    def comparable(self) -> int:
        """How many elements were expected to be finite, and are steady."""
        return int(np.count_nonzero(np.isfinite(self.expected) & ~self.unsteady))

    @property
    def errors(self) -> NDArray[np.float64]:
        """The differences of those that are compared."""
        return self.error[self.compared]

    def tolerance(self, rtol: float, absolute: float) -> NDArray[np.float64]:
        """Return how far each element may be off: by a share of it, and by as much whatever it is."""
        return rtol * np.abs(np.where(self.compared, self.expected, 0.0)) + absolute

    def beyond(self, allowed: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which elements are off by more than they may be."""
        return self.kind_differs | (self.compared & (self.error > allowed))

    def worst_in_words(self, outside: NDArray[np.bool_], allowed: NDArray[np.float64] | None) -> str:
        """Say how many elements are outside of the tolerance, and which is the worst; its own tolerance if it is given."""
        badness = np.where(self.kind_differs, np.inf, np.where(outside, self.error, -1.0))
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(badness)), self.expected.shape))
        return (
            f"{np.count_nonzero(outside)} of {self.expected.size} elements are outside the tolerance, the worst at {list(at)}: "
            f"{self.actual[at]:.6g}, expected {self.expected[at]:.6g}"
            + ("" if allowed is None else f" give or take {allowed[at]:.2g}")
        )
