"""Quantise a float network to 8 bits, as far as the accuracy asked for allows."""
