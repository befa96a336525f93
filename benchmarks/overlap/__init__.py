"""Benchmarks of overlapped rounds: building, measuring and searching at the same time."""
