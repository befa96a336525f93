"""Measuring: builders make kernels of configs, runners time them, on this machine or a device."""
