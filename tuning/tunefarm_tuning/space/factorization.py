"""The factorizations of an extent into a given number of factors, in canonical order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MAX_FACTORIZATIONS = 1 << 16
"""Longer lists are thinned evenly to this many; 2^14 times 7^2 in five parts has 46 thousand factorizations."""


def prime_factors(number: int) -> list[int]:
    """Return the prime factors of `number`, ascending, repeated as often as they divide it."""
    primes = []
    remainder, candidate = number, 2
    while candidate * candidate <= remainder:
        while remainder % candidate == 0:
            primes.append(candidate)
            remainder //= candidate
        candidate += 1 if candidate == 2 else 2
    if remainder > 1:
        primes.append(remainder)
    return primes


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of `number`, ascending."""
    products = {1}
    for prime in prime_factors(number):
        products |= {product * prime for product in products}
    return tuple(sorted(products))


class _Counter:
    """Counts the factorizations with a bounded last factor, and returns any of them by rank without listing all."""

    def __init__(self, max_innermost: int) -> None:
        self._max_innermost = max_innermost
        self._counts: dict[tuple[int, int], int] = {}

    def count(self, extent: int, parts: int) -> int:
        if parts == 1:
            return 1 if extent <= self._max_innermost else 0
        count = self._counts.get((extent, parts))
        if count is None:
            count = sum(self.count(extent // d, parts - 1) for d in divisors(extent))
            self._counts[extent, parts] = count
        return count

    def at(self, rank: int, extent: int, parts: int) -> list[int]:
        """Return the factorization of that rank in lexicographic order."""
        factors: list[int] = []
        for remaining in range(parts, 1, -1):
            for divisor in divisors(extent):
                below = self.count(extent // divisor, remaining - 1)
                if rank < below:
                    factors.append(divisor)
                    extent //= divisor
                    break
                rank -= below
        return [*factors, extent]


@lru_cache(maxsize=256)
def factorizations(extent: int, parts: int, max_innermost: int) -> IntArray:
    """Return every factorization of `extent` into `parts` factors whose last is at most `max_innermost`.

    Rows ascend lexicographically. Where there are more than `MAX_FACTORIZATIONS`, that many evenly
    spaced ones stand for them all. The array is shared between callers: it is read-only.

    Returns:
        Shape ``(n, parts)``.
    """
    counter = _Counter(max_innermost)
    total = counter.count(extent, parts)
    if total > MAX_FACTORIZATIONS:
        ranks = [rank * total // MAX_FACTORIZATIONS for rank in range(MAX_FACTORIZATIONS)]
        table = np.array([counter.at(rank, extent, parts) for rank in ranks], dtype=np.int64)
    else:
        rows: list[list[int]] = [[]]
        quotients = [extent]
        for remaining in range(parts - 1, 0, -1):
            rows, quotients = _extend(rows, quotients, remaining, counter)
        table = np.array(
            [[*row, quotient] for row, quotient in zip(rows, quotients, strict=True)], dtype=np.int64
        )
    table.flags.writeable = False
    return table


def _extend(
    rows: list[list[int]], quotients: list[int], remaining: int, counter: _Counter
) -> tuple[list[list[int]], list[int]]:
    """Append every legal next factor to every row; return the longer rows and the remaining extent of each."""
    longer, remainders = [], []
    for row, quotient in zip(rows, quotients, strict=True):
        for divisor in divisors(quotient):
            if counter.count(quotient // divisor, remaining):
                longer.append([*row, divisor])
                remainders.append(quotient // divisor)
    return longer, remainders
