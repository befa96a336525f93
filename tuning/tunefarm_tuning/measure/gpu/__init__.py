"""A GPU's state while kernels are timed on it, as NVIDIA's driver reports it, and the baselines on it."""
