"""Whole networks, compiled, next to what else runs them. Run from the root: ``python -m benchmarks.models.NAME``."""
