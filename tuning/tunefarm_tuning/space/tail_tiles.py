"""Find the extents that no good tile divides: their tiles may leave a tail.

A tile knob lists factors whose product is the extent of a loop. For 197 the tiles are 1 and 197, for 116 they are 4, 29, 58 and
116: none of them fills registers and vectors. So such a knob also lists tilings of some larger numbers. A loop split by them
would run beyond its end, and these iterations are left out: the last tile is a tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tunefarm_tuning.space.factorization import IntArray, prime_factors

_LARGEST_TILE = 16
"""A prime factor up to this is itself a tile that fits into the registers."""
_ROWS = (12, 8, 14, 6, 16, 10, 9, 7, 15, 13, 11, 5, 4)
"""Numbers of rows of a register tile; those that suit most machines come first."""
_VECTORS = (2.0, 4.0, 1.0, 3.0, 0.5)
"""Numbers of vectors of a register tile, in the same order."""
_WHOLE_VECTORS = 4
"""A loop of up to so many vectors is a single tile whose last vector is not full, which is as good as a tail."""
_MAX_LISTED = 5
_LARGE = 2048
_MAX_LISTED_OF_LARGE = 2
_ROWS_OVER, _VECTORS_OVER = 1.15, 1.3
"""Upper bounds of a product relative to the extent. What lies beyond the extent is not computed; it costs code, not time."""
_ROUNDER_OVER = 1.07
"""Up to this multiple of the extent, numbers with smaller primes are preferred, as the tiles themselves are grouped too."""
_MAX_TRIED = 64


def tail_extents(extent: int, *, lanes: int = 0) -> tuple[int, ...]:
    """Return the products above an extent whose tilings a knob lists, too, ascending; none if good tiles divide it.

    Args:
        extent: Extent of a loop that is no reduction loop.
        lanes: Elements of a vector for the loop that is vectorised; 0 for any other.
    """
    if lanes > 1:
        tiles, limit = [int(count * lanes) for count in _VECTORS], _VECTORS_OVER
        is_single_tile = extent <= _WHOLE_VECTORS * lanes
        good = is_single_tile or (extent % max(2, lanes // 2) == 0 and _is_round(extent))
    else:
        tiles, limit = list(_ROWS), _ROWS_OVER
        good = _is_round(extent)
    if good:
        return ()
    products: list[int] = []
    for rounded in _rounded(extent, tiles, limit):
        if rounded not in products:
            products.append(rounded)
    return tuple(sorted(products[: _MAX_LISTED if extent <= _LARGE else _MAX_LISTED_OF_LARGE]))


def num_tails(tilings: IntArray, extent: int) -> IntArray:
    """Count for each tiling the levels at which a loop of `extent` iterations has full tiles and a tail.

    Tilings are factors, outermost first, of shape ``(n, parts)``; counts have shape ``(n,)``.
    """
    span = np.full(len(tilings), extent, dtype=np.int64)
    count = np.zeros(len(tilings), dtype=np.int64)
    for level in range(1, tilings.shape[1]):
        tile = tilings[:, level:].prod(axis=1)
        tail = span % tile
        count += (span > tile) & (tail > 0)
        span = np.where(tail > 0, tail, tile)
    return count


def _is_round(extent: int) -> bool:
    return max(prime_factors(extent), default=1) <= _LARGEST_TILE


def _rounded(extent: int, tiles: Sequence[int], limit: float) -> Iterator[int]:
    """Yield for each tile the multiple of it just above the extent that has the smallest primes."""
    for tile in tiles:
        first = (extent // tile + 1) * tile  # perfect tilings have the tile where it divides the extent
        if first <= limit * extent and 1 < tile < extent:
            last = max(first, int(_ROUNDER_OVER * extent))
            near = range(first, last + 1, tile)[:_MAX_TRIED]
            yield min(near, key=lambda number: (max(prime_factors(number)), number))
