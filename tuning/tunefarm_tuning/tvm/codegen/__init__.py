"""Build libraries of prepared modules.

`graph_build` puts tuned kernels into a network, has the others scheduled by rule (`scheduled_build`; `kept_schedules` keeps them for later
builds), and has TVM build a library of it, or of one kernel. `other_shapes` adds an entry for all sizes first.

For a CPU, each kernel is compiled once (`kernel_objects`; `onednn` for those that call it), and `target.linker` links the objects. For a
GPU, `device_code` does so after it has replaced the CUDA C in TVM's library by machine code, which `cuda_compile` makes with ``nvcc``.
"""
