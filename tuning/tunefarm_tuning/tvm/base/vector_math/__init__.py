"""Functions of real numbers in vector instructions: their formulas, and the rules by which kernels get them."""
