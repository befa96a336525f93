"""Functions of JAX for each operation and form of StableHLO that tunefarm converts, with inputs."""

from __future__ import annotations

from stablehlo_zoo import elementwise, indexing, products, reductions
from stablehlo_zoo.cases import CASES

__all__ = ["CASES", "elementwise", "indexing", "products", "reductions"]
