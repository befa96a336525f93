"""How a GPU is while something is timed on it, as NVIDIA's driver tells."""
