"""Build libraries of prepared modules.

`graph_build` puts tuned kernels into a network, schedules the others by rule, and has TVM build a library of it, or of one kernel.
For a CPU, `linker` links TVM's object files. For a GPU, `device_code` does so after it has replaced the CUDA C in TVM's library by
machine code, which `cuda_compile` makes with ``nvcc``.
"""
