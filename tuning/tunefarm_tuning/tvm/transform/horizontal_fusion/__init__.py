"""Horizontal fusion: replace parallel matrix products or convolutions of one input by a single one."""
