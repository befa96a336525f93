"""How good and how fast the search is, next to stock MetaSchedule. Run from the root: ``python -m benchmarks.search.NAME``."""
