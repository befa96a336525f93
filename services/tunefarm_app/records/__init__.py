"""What is on record of kernels: search, sources, rooflines."""
