"""A GPU's state while kernels are timed on it, as NVIDIA's driver reports it, and the baselines on it.

`state` says whether a timing can be trusted, from what `reading` asks the driver (`nvml`; in tests `nvml_recorded`). `cuda_errors` tells
whose fault an error is. `baseline` times other runtimes.
"""
