"""Rows of a config space that may be legal, where most that are drawn at random are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.space.factorization import IntArray

_ROUNDS = 24
_AT_A_TIME = 4096


class _Space(Protocol):
    def fits(self, rows: IntArray) -> npt.NDArray[np.bool_]: ...


def draw_fitting(space: _Space, rows: IntArray, draw: Callable[[int], IntArray]) -> IntArray:
    """Return rows with those that do not fit replaced by others that do, of the same sketches as far as there are any.

    Of a convolution's configs for a GPU one in a hundred fits: the rest ask for too many threads, or too much memory.

    Args:
        space: Whose rows they are.
        rows: Drawn at random, each of a sketch that is as good as any.
        draw: Draws more of them.
    """
    missing = np.flatnonzero(~space.fits(rows))
    found = rows.copy()
    spare = found[:0]
    for _ in range(_ROUNDS):
        if not len(missing):
            return found
        more = draw(_AT_A_TIME)
        more = more[space.fits(more)]
        spare = more if len(more) else spare
        left = []
        for sketch in np.unique(rows[missing, 0]):
            wanted = missing[rows[missing, 0] == sketch]
            fitting = more[more[:, 0] == sketch][: len(wanted)]
            found[wanted[: len(fitting)]] = fitting
            left.append(wanted[len(fitting) :])
        missing = np.concatenate(left)
    if len(spare):  # sketches of which next to nothing fits: take others
        found[missing] = spare[np.arange(len(missing)) % len(spare)]
    return found
