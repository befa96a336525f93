"""Schedules of kernels that nobody has tuned, made by rule."""
