"""Benchmarks of the search beside stock MetaSchedule. Run from the root: ``python -m benchmarks.search.NAME``."""
