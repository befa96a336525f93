"""Kernels of our own, and how kernels read their weights."""
