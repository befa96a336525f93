"""Horizontal fusion: parallel matrix products and convolutions of one input become one."""
