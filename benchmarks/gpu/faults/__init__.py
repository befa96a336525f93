"""Faults on a GPU while a farm tunes on it: ``python -m benchmarks.gpu.faults``."""
