"""Transformations of a network's weights at compile time: folding, pre-packing, storage in fewer bytes."""
