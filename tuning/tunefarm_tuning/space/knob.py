"""A knob: one dimension of a config space, with every decision that it can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from tunefarm_tuning.space.config import Decision, KnobKind
from tunefarm_tuning.space.factorization import IntArray, divisors, factorizations, prime_factors
from tunefarm_tuning.space.tail_tiles import num_tails

_MAX_EXTENT = 1 << 31
_MAX_PARTS = 5  # the depth of MetaSchedule's deepest tiling structure (SSSRRSRS)
_MAX_TAIL_EXTENTS = 16
_TO_ANOTHER_PRODUCT = 0.25
"""Share of steps that go to a tiling of another product, in knobs whose tiles may leave a tail."""
_PROBES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One dimension of a sketch; make one with `tile`, `categorical` or `location`.

    Attributes:
        name: Name for people; not part of equality.
        kind: Meaning of a decision.
        extent: Iterations of the loop (tiles).
        parts: Number of factors (tiles).
        max_innermost: Upper bound of the last factor (tiles).
        values: The values that a categorical knob chooses from, or the locations themselves. Empty for tiles.
        weights: Relative sampling frequency of each of `values`. Empty means equal frequencies.
        tail_products: Products that the factors may have instead of `extent` (tiles): larger numbers, ascending. The last
            tile is then a tail (`space.tail_tiles`). Only tilings with a tail at one level are listed: each tail is code
            of its own.
    """

    name: str
    kind: KnobKind
    extent: int
    parts: int
    max_innermost: int
    values: tuple[float, ...]
    weights: tuple[float, ...]
    tail_products: tuple[int, ...]

    def __init__(
        self,
        *,
        name: str,
        kind: KnobKind,
        extent: int = 0,
        parts: int = 0,
        max_innermost: int = 0,
        values: tuple[float, ...] = (),
        weights: tuple[float, ...] = (),
        tail_products: tuple[int, ...] = (),
        rest_extents: tuple[int, ...] | None = None,
    ) -> None:
        """Set the attributes; `rest_extents` is the deprecated name of `tail_products`."""
        products = tail_products if rest_extents is None else rest_extents
        attributes = (name, kind, extent, parts, max_innermost, values, weights, products)
        for field, value in zip(fields(self), attributes, strict=True):
            object.__setattr__(self, field.name, value)

    @classmethod
    def tile(
        cls,
        name: str,
        extent: int,
        parts: int,
        max_innermost: int,
        tail_products: Sequence[int] = (),
        *,
        rest_extents: Sequence[int] = (),
    ) -> Knob:
        """Return a knob that splits a loop of `extent` iterations into `parts` factors.

        Args:
            name: Name for people.
            extent: Iterations of the loop.
            parts: Number of factors.
            max_innermost: Upper bound of the last factor.
            tail_products: Products that the factors may have instead of `extent`.
            rest_extents: Deprecated name of `tail_products`.
        """
        tail_products = tail_products or rest_extents
        if not 1 <= extent <= _MAX_EXTENT or not 1 <= parts <= _MAX_PARTS:
            raise ValueError(f"knob {name}: cannot split {extent} into {parts} parts")
        if max_innermost < 1 or (parts == 1 and extent > max_innermost):
            raise ValueError(
                f"knob {name}: no factorization of {extent} has a last factor up to {max_innermost}"
            )
        products = (extent, *tail_products)
        if len(tail_products) > (0 if parts < 2 else _MAX_TAIL_EXTENTS):
            raise ValueError(f"knob {name}: cannot have tilings of {len(tail_products)} other extents")
        if list(products) != sorted(set(products)) or products[-1] > min(_MAX_EXTENT, 2 * extent):
            raise ValueError(f"knob {name}: tilings of {tail_products} are none of {extent}")
        return cls(
            name=name,
            kind=KnobKind.TILE,
            extent=extent,
            parts=parts,
            max_innermost=max_innermost,
            tail_products=tuple(tail_products),
        )

    @classmethod
    def categorical(
        cls, name: str, candidates: Sequence[float], probs: Sequence[float] | None = None
    ) -> Knob:
        """Return a knob that picks one of `candidates`; its decision is the index."""
        if not candidates or (probs is not None and len(probs) != len(candidates)):
            raise ValueError(
                f"knob {name}: {len(candidates)} candidates with {len(probs or ())} probabilities"
            )
        weights = tuple(float(p) for p in probs or ())
        if weights and (min(weights) < 0 or sum(weights) <= 0):
            raise ValueError(f"knob {name}: probabilities must be non-negative and not all zero")
        return cls(
            name=name, kind=KnobKind.CATEGORICAL, values=tuple(_plain(c) for c in candidates), weights=weights
        )

    @classmethod
    def location(cls, name: str, candidates: Sequence[int]) -> Knob:
        """Return a knob that picks a compute location; its decision is the location itself."""
        if not candidates:
            raise ValueError(f"knob {name}: no compute location to choose from")
        return cls(name=name, kind=KnobKind.LOCATION, values=tuple(sorted({int(c) for c in candidates})))

    def __len__(self) -> int:
        """Return how many decisions there are."""
        return len(self.table) if self.kind is KnobKind.TILE else len(self.values)

    @property
    def identity(self) -> tuple[Any, ...]:
        """The identity of a dimension: all attributes except the name and the sampling weights."""
        tails = (self.tail_products,) if self.tail_products else ()
        return (self.kind, self.extent, self.parts, self.max_innermost, self.values, *tails)

    @property
    def rest_extents(self) -> tuple[int, ...]:
        """Deprecated name of `tail_products`."""
        return self.tail_products

    @property
    def products(self) -> tuple[int, ...]:
        """The products that the factors of a tile may have, ascending; the extent is the first."""
        return (self.extent, *self.tail_products)

    @property
    def table(self) -> IntArray:
        """The factors of every decision of a tile, shape ``(len(self), parts)``, read-only."""
        return _tilings(self.products, self.parts, self.max_innermost).table

    @property
    def choices(self) -> Sequence[Decision]:
        """Every decision, in canonical order. Long lists of tilings are thinned (`MAX_FACTORIZATIONS`)."""
        return [self.decision_at(i) for i in range(len(self))]

    def decision_at(self, index: int) -> Decision:
        """Return the decision at `index` of the canonical order."""
        if self.kind is KnobKind.TILE:
            return tuple(self.table[index].tolist())
        if not 0 <= index < len(self.values):
            raise IndexError(index)
        return index if self.kind is KnobKind.CATEGORICAL else int(self.values[index])

    def find(self, decision: Decision) -> int | None:
        """Return the index of a decision; None if it is not among the choices."""
        if isinstance(decision, tuple):
            if not self._may_be(decision):
                return None
            index = int(self.find_factors(np.array([decision], dtype=np.int64))[0])
            return None if index < 0 else index
        if self.kind is KnobKind.CATEGORICAL:
            return decision if 0 <= decision < len(self.values) else None
        if self.kind is KnobKind.LOCATION and decision in self.values:
            return self.values.index(decision)
        return None

    def nearest(self, decision: Decision) -> int | None:
        """Return the index of the choice nearest to a decision; None if it is of another kind of knob.

        An applied config can hold a location that the sketch did not list, and a thinned tile
        knob does not list every tiling.
        """
        index = self.find(decision)
        if index is not None:
            return index
        if isinstance(decision, tuple):
            if not self._may_be(decision):
                return None
            away = np.log2(self.table) - np.log2(np.array(decision, dtype=np.float64))
            return int(np.argmin((away**2).sum(axis=1)))
        if self.kind is KnobKind.TILE:
            return None
        if self.kind is KnobKind.CATEGORICAL:
            return min(max(decision, 0), len(self.values) - 1)
        return int(np.argmin([abs(value - decision) for value in self.values]))

    def _may_be(self, factors: tuple[int, ...]) -> bool:
        """Return whether factors have the form of a tiling; records from elsewhere may have any numbers."""
        return (
            self.kind is KnobKind.TILE
            and len(factors) == self.parts
            and 1 <= min(factors) <= max(factors) <= self.products[-1]
        )

    def find_factors(self, factors: IntArray) -> IntArray:
        """Return the index of each row of factors, -1 if it is not among the choices. Shape ``(n,)``."""
        tilings = _tilings(self.products, self.parts, self.max_innermost)
        positions = np.searchsorted(tilings.divisors, factors)
        known = (positions < len(tilings.divisors)) & (
            tilings.divisors[np.minimum(positions, len(tilings.divisors) - 1)] == factors
        )
        wanted = _encode(positions, len(tilings.divisors))
        nearest = np.minimum(np.searchsorted(tilings.codes, wanted), len(tilings.codes) - 1)
        listed = (tilings.codes[nearest] == wanted) & known.all(axis=1)
        return np.where(listed, tilings.order[nearest], -1)

    def sample_indices(self, rng: np.random.Generator, n: int) -> IntArray:
        """Draw `n` indices, with repetition. Shape ``(n,)``."""
        if self.weights:
            share = np.array(self.weights) / sum(self.weights)
            return rng.choice(len(self), size=n, p=share).astype(np.int64)
        return rng.integers(len(self), size=n)

    def step_indices(self, indices: IntArray, rng: np.random.Generator) -> IntArray:
        """Return a random neighbour of each index: one prime factor moved, or the choice next to it.

        Source: TVM's ``MutateTileSize``, which moves any divisor.
        """
        if len(self) < 2:
            return indices
        n = len(indices)
        if self.kind is not KnobKind.TILE:
            step = np.where(rng.integers(2, size=n) == 1, 1, -1)
            moved = indices + step
            return np.where((moved < 0) | (moved >= len(self)), indices - step, moved)
        factors = self.table[indices]
        prime = self._random_primes(factors, rng)
        divisible = factors % prime[:, None] == 0
        source = np.where(divisible, rng.random(factors.shape), -1.0).argmax(axis=1)
        target = (source + rng.integers(1, max(self.parts, 2), size=n)) % self.parts
        rows = np.arange(n)
        moved_factors = factors.copy()
        moved_factors[rows, source] //= prime
        moved_factors[rows, target] *= prime
        steps = self.find_factors(moved_factors)
        # The move may violate max_innermost or lead to a tiling that was thinned away: then take any other decision.
        other = (indices + rng.integers(1, len(self), size=n)) % len(self)
        steps = np.where(steps < 0, other, steps)
        return self._with_other_products(indices, steps, rng) if self.tail_products else steps

    def _random_primes(self, factors: IntArray, rng: np.random.Generator) -> IntArray:
        """Return a prime of each row's product, drawn as often as it divides it."""
        if not self.tail_products:
            return rng.choice(prime_factors(self.extent), size=len(factors))
        product = factors.prod(axis=1)
        prime = np.ones(len(factors), dtype=np.int64)
        for number in self.products:
            chosen = np.flatnonzero(product == number)
            prime[chosen] = rng.choice(prime_factors(number), size=len(chosen))
        return prime

    def _with_other_products(self, indices: IntArray, steps: IntArray, rng: np.random.Generator) -> IntArray:
        """Return steps, some replaced by a step to a tiling of another product: the nearest of a few random ones."""
        chosen = np.flatnonzero(rng.random(len(indices)) < _TO_ANOTHER_PRODUCT)
        logs = np.log2(self.table)
        probes = rng.integers(len(self), size=(len(chosen), _PROBES))
        here = logs[indices[chosen]]
        away = ((logs[probes] - here[:, None]) ** 2).sum(axis=2)
        away[np.isclose(logs[probes].sum(axis=2), here.sum(axis=1)[:, None])] = np.inf
        nearest = away.argmin(axis=1)
        rows = np.arange(len(chosen))
        legal = np.isfinite(away[rows, nearest])
        replaced = steps.copy()
        replaced[chosen[legal]] = probes[rows, nearest][legal]
        return replaced

    def neighbour_indices(self, index: int) -> list[int]:
        """Return all neighbours that `step_indices` reaches by a legal move, ascending; for tiles, those of equal product."""
        if self.kind is not KnobKind.TILE:
            return [i for i in (index - 1, index + 1) if 0 <= i < len(self)]
        factors = self.table[index]
        moved = []
        for prime in sorted(set(prime_factors(int(factors.prod())))):
            for source in range(self.parts):
                if factors[source] % prime:
                    continue
                for target in range(self.parts):
                    if target != source:
                        row = factors.copy()
                        row[source] //= prime
                        row[target] *= prime
                        moved.append(row)
        if not moved:
            return []
        indices = self.find_factors(np.array(moved))
        return sorted({int(i) for i in indices if i >= 0 and i != index})

    def to_json(self) -> list[Any]:
        """Return a compact list: a tile has its extent, not its choices."""
        if self.kind is KnobKind.TILE:
            tails = [list(self.tail_products)] if self.tail_products else []
            return [self.kind.value, self.name, self.extent, self.parts, self.max_innermost, *tails]
        if self.kind is KnobKind.CATEGORICAL:
            return [self.kind.value, self.name, list(self.values), list(self.weights)]
        return [self.kind.value, self.name, list(self.values)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Knob:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is not such a list.
        """
        try:
            kind, name, *fields = data
            if kind == KnobKind.TILE:
                extent, parts, max_innermost, *tails = fields
                (tail_extents,) = tails or [()]
                products = [int(product) for product in tail_extents]
                return cls.tile(str(name), int(extent), int(parts), int(max_innermost), products)
            if kind == KnobKind.CATEGORICAL:
                candidates, probs = fields
                return cls.categorical(str(name), candidates, probs or None)
            if kind == KnobKind.LOCATION:
                (candidates,) = fields
                return cls.location(str(name), candidates)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a knob: {str(data)[:80]} ({error})") from error
        raise ValueError(f"not a knob: {str(data)[:80]}")


def _plain(value: float) -> float:
    """Return a whole number as an int, so that 16 and 16.0 have the same text."""
    number = float(value)
    return int(number) if number.is_integer() else number


def _encode(positions: IntArray, base: int) -> IntArray:
    """Return one number per row that orders rows lexicographically."""
    code = np.zeros(len(positions), dtype=np.int64)
    for column in positions.T:
        code = code * base + column
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tilings:
    """All tilings of some products, with an index.

    Attributes:
        table: The factors, product by product.
        divisors: All divisors of the products, ascending.
        codes: The encoded tilings, ascending.
        order: The row of `table` for each of `codes`.
    """

    table: IntArray
    divisors: IntArray
    codes: IntArray
    order: IntArray


@lru_cache(maxsize=256)
def _tilings(products: tuple[int, ...], parts: int, max_innermost: int) -> _Tilings:
    sorted_divisors = np.array(
        sorted({divisor for product in products for divisor in divisors(product)}), dtype=np.int64
    )
    extent, *others = products
    tables = [factorizations(extent, parts, max_innermost)]
    for product in others:
        rows = factorizations(product, parts, max_innermost)
        tables.append(rows[num_tails(rows, extent) == 1])
    table = tables[0] if len(tables) == 1 else np.vstack(tables)
    table.flags.writeable = False
    codes = _encode(np.searchsorted(sorted_divisors, table), len(sorted_divisors))
    order = np.argsort(codes, kind="stable").astype(np.int64)
    return _Tilings(table=table, divisors=sorted_divisors, codes=codes[order], order=order)
