"""Benchmarks of whole networks beside other runtimes. Run from the root: ``python -m benchmarks.models.NAME``."""
