"""Which extents tiles may leave a rest of: those that no good tile divides.

A tile knob lists factors whose product is the loop's extent. For 197 that is a tile of 1 or of 197, for 116 of 4, 29, 58 or 116:
none of them fills registers and vectors. So such a knob lists tilings of some larger numbers too. A loop split by them runs
over its end; what would lie behind it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tunefarm_tuning.space.factorization import IntArray, prime_factors

_LARGEST_TILE = 16
"""A prime factor up to this is itself a tile that fits into the registers."""
_ROWS = (12, 8, 14, 6, 16, 10, 9, 7, 15, 13, 11, 5, 4)
"""How many rows a register tile may have, what suits most machines first."""
_VECTORS = (2.0, 4.0, 1.0, 3.0, 0.5)
"""How many vectors, likewise."""
_WHOLE_VECTORS = 4
"""A loop up to so many vectors long is one tile of them, its last vector not full: as good as with a rest."""
_MOST_LISTED = 5
_LARGE = 2048
_MOST_LISTED_OF_LARGE = 2
_ROWS_OVER, _VECTORS_OVER = 1.15, 1.3
"""Longer than the loop by this at most. What lies behind its end is not computed: it costs code, not time."""
_ROUNDER_OVER = 1.07
"""Up to this a number of smaller primes is preferred: the tiles themselves are to be grouped, too."""
_MOST_TRIED = 64


def tail_extents(extent: int, *, lanes: int = 0) -> tuple[int, ...]:
    """Return the numbers above an extent whose tilings a knob should list too, ascending; none where good tiles divide it.

    Args:
        extent: Of a loop that no sum runs over.
        lanes: Elements of a vector where the loop is the one that vectors run along; 0 for any other.
    """
    if lanes > 1:
        tiles, most = [int(count * lanes) for count in _VECTORS], _VECTORS_OVER
        whole = extent <= _WHOLE_VECTORS * lanes
        good = whole or (extent % max(2, lanes // 2) == 0 and _is_round(extent))
    else:
        tiles, most = list(_ROWS), _ROWS_OVER
        good = _is_round(extent)
    if good:
        return ()
    found: list[int] = []
    for rounded in _rounded(extent, tiles, most):
        if rounded not in found:
            found.append(rounded)
    return tuple(sorted(found[: _MOST_LISTED if extent <= _LARGE else _MOST_LISTED_OF_LARGE]))


def num_tails(tilings: IntArray, extent: int) -> IntArray:
    """Return for each tiling, a row of factors, at how many of its levels a loop of `extent` iterations has whole tiles and a rest."""
    left = np.full(len(tilings), extent, dtype=np.int64)
    found = np.zeros(len(tilings), dtype=np.int64)
    for level in range(1, tilings.shape[1]):
        tile = tilings[:, level:].prod(axis=1)
        rest = left % tile
        found += (left > tile) & (rest > 0)
        left = np.where(rest > 0, rest, tile)
    return found


def _is_round(extent: int) -> bool:
    return max(prime_factors(extent), default=1) <= _LARGEST_TILE


def _rounded(extent: int, tiles: Sequence[int], most: float) -> Iterator[int]:
    """Yield for each tile the roundest number that it divides, of those just above the extent."""
    for tile in tiles:
        first = (extent // tile + 1) * tile  # where the tile divides the extent, perfect tilings have it
        if first <= most * extent and 1 < tile < extent:
            last = max(first, int(_ROUNDER_OVER * extent))
            near = range(first, last + 1, tile)[:_MOST_TRIED]
            yield min(near, key=lambda number: (max(prime_factors(number)), number))
