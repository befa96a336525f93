"""A GPU's state while kernels are timed on it, as NVIDIA's driver tells, and the baselines on it."""
