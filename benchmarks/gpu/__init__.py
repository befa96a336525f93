"""Benchmarks of networks on a GPU beside PyTorch, and the checks that need a GPU."""
