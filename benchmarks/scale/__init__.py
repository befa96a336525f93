"""Benchmarks of the size of a farm: real processes and a replay engine, by the number of devices."""
