"""Convolutions: `convolution` recognises them and copies them with other operands; `narrow` widens those of few channels, `transposed` decomposes."""
